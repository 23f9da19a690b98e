"""What is known of an operator in a window, as a policy with a performance model sees it when it plans."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from elastream.measurement import Snapshot
from elastream.measurement.back_pressure import back_pressure, is_overloaded
from elastream.nodes.site import Placed, Site
from elastream.policies.mst.mst_model import MstModel, Sustained
from elastream.policies.mst.sizing import Sized
from elastream.policies.proposal import Advice
from elastream.texts import rate_text

_SAME_DELAY_S = 0.001
_WELL_KNOWN = 0.05  # relative standard error


@dataclass(frozen=True, kw_only=True)
class SizedOperator:
    snapshot: Snapshot
    model: MstModel | None
    points: tuple[Sustained, ...]
    """What the model is from."""
    site: Site
    arriving_per_s: float | None
    to_catch_up_per_s: float | None
    """What arrives, or is about to, and a part of what waits."""
    later_per_s: float
    """The most of that for as long as a new size is meant to last."""
    removable_for_s: float
    """For how long it could have done with fewer instances."""
    action_s: float

    @property
    def name(self) -> str:
        return self.site.operator

    @property
    def most(self) -> float:
        operator = self.snapshot.dataflow[self.name]
        return self.site.instances if operator.fixed else operator.most

    @property
    def least(self) -> int:
        operator = self.snapshot.dataflow[self.name]
        return self.site.instances if operator.fixed else operator.min_parallelism

    @property
    def observed_per_s(self) -> float:
        rates = self.snapshot.measurements.get(self.name)
        return 0.0 if rates is None else rates.observed_per_s

    @property
    def has_model(self) -> bool:
        """Of all three parameters, and what it should sustain is known as well."""
        return self.model is not None and self.model.is_full and self.to_catch_up_per_s is not None

    @property
    def is_well_known(self) -> bool:
        """What the present nodes sustain."""
        now = self.site.now
        return self.model is not None and self.model.relative_error(now.instances, now.delay_s) <= _WELL_KNOWN

    def sustained_per_s(self, *, overloaded: bool) -> float:
        """With the nodes that it has: what it does now at its limit, or was seen to do, or should by the model."""
        if overloaded:
            return self.observed_per_s
        now = self.site.now
        for point in self.points:
            if point.instances == now.instances and abs(point.delay_s - now.delay_s) <= _SAME_DELAY_S:
                return point.records_per_s
        return 0.0 if self.model is None else self.model.mst_per_s(now.instances, now.delay_s)

    def arriving_text(self, wanted: float) -> str:
        arriving = self.arriving_per_s or 0.0
        if wanted <= arriving:
            return f"{rate_text(arriving)} arrive"
        return f"{rate_text(arriving)} arrive, {rate_text(wanted)} with what waits or is expected"

    def efficiency(self, sized: Sized, sustained: float) -> float:
        """What more instances bring, as a share of what as many would bring that work as those that it has."""
        before, after = self.site.instances, sized.placed.instances
        in_proportion = sustained * (after / before - 1)
        return (sized.mst_per_s - sustained) / in_proportion if in_proportion > 0 else 1.0

    def gain_per_cost(self, placed: Placed) -> float | None:
        """By how much more it should sustain, as a share of now; None where the model cannot say."""
        model, now = self.model, self.site.now
        if model is None or any(model.beyond(at.instances, at.delay_s) for at in (now, placed)):
            return None
        before = model.mst_per_s(now.instances, now.delay_s)
        cost = self.site.cost_of(placed)
        if before <= 0 or cost <= 0:
            return None
        return (model.mst_per_s(placed.instances, placed.delay_s) / before - 1) / cost

    def limit_per_s(self, advice: Advice, *, high: float) -> float | None:
        """What it should sustain once the advice is followed; None where it keeps up and nothing is known."""
        after = advice.current if advice.parallelism is None else advice.parallelism
        overloaded = bool(is_overloaded(self.snapshot, self.name, high=high))
        if after == advice.current:
            return self.observed_per_s if overloaded else None
        delay_s = self.site.delay_s(advice.nodes)
        if self.model is None or self.model.beyond(after, delay_s) is not None:
            return self.observed_per_s * after / advice.current
        return self.model.mst_per_s(after, delay_s)

    @property
    def overload_text(self) -> str:
        before: Mapping[str, float | None] = {
            producer: back_pressure(self.snapshot, producer)
            for producer in self.snapshot.dataflow.upstream(self.name)
        }
        held = ", ".join(f"{name} for {share or 0.0:.0%} of the window" for name, share in before.items())
        return f"holds back {held}, and is not held back itself"
