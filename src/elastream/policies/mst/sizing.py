"""The model turned round: how many instances, on which nodes, for a wanted throughput.

A node that is far away may cost more than it brings, and its leaving may bring more than it cost. So more
instances do not always sustain more, and every number within the bounds is looked at.
"""

from __future__ import annotations

from dataclasses import dataclass

from elastream.nodes.site import Placed, Site
from elastream.policies.mst.mst_model import MstModel


@dataclass(frozen=True, kw_only=True)
class Sized:
    placed: Placed
    mst_per_s: float
    stopped_by: str | None = None
    """What the model could not be asked about, as text, where that ended the search."""


def enough(model: MstModel, site: Site, wanted_per_s: float, *, most: float) -> Sized | None:
    """The first larger size that sustains the rate; else the one that sustains most; None where there is none."""
    best: Sized | None = None
    for placed in site.larger(most=most):
        beyond = model.beyond(placed.instances, placed.delay_s)
        if beyond is not None:
            return None if best is None else Sized(placed=best.placed, mst_per_s=best.mst_per_s, stopped_by=beyond)
        mst_per_s = model.mst_per_s(placed.instances, placed.delay_s)
        if best is None or mst_per_s > best.mst_per_s:
            best = Sized(placed=placed, mst_per_s=mst_per_s)
        if mst_per_s >= wanted_per_s:
            return best
    return best


def fewest(model: MstModel, site: Site, wanted_per_s: float, *, least: int) -> Sized | None:
    """The smallest size below the present one that sustains the rate; None where none does."""
    best: Sized | None = None
    for placed in site.smaller(least=least):
        if model.mst_per_s(placed.instances, 0.0) < wanted_per_s:
            break  # nor would fewer, on whichever nodes
        if model.beyond(placed.instances, placed.delay_s) is not None:
            break
        mst_per_s = model.mst_per_s(placed.instances, placed.delay_s)
        if mst_per_s >= wanted_per_s:
            best = Sized(placed=placed, mst_per_s=mst_per_s)
    return best
