"""Locks between living instances: neighbours take turns, a bound is kept, a keeper that comes back goes on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from elastream.dataflow import Dataflow, Operator
from elastream.decentralized.locks import LOCKS
from elastream.decentralized.protocol.instance import InstancePhase
from elastream.testing import chain
from tests.decentralized.spark.control_sites import OVER_TCP, Site, Sites, living_sites, wait_until

MOST = 3
FLOW = Dataflow.of(
    (Operator(name=name, source=name == "a", max_parallelism=MOST) for name in "abc"), chain("a", "b", "c")
)


@pytest.fixture(params=LOCKS)
def sites(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Sites]:
    with living_sites(tmp_path, replace(OVER_TCP, locks=request.param), FLOW) as found:
        yield found


def test_neighbours_duplicate_in_turns_and_what_is_beyond_the_bound_is_dropped(sites: Sites) -> None:
    sites["b/0"].protocol.duplicate(1)
    sites["c/0"].protocol.duplicate(MOST)
    wait_until(lambda: sites.at_rest() and len(sites) == 1 + 2 + MOST, sites.story)
    assert (len(sites.all_of("b")), len(sites.all_of("c"))) == (2, MOST)
    sites.check_views()
    told = [(me, event) for me, event, _ in sites.log if event in ("waits", "dropped")]
    assert sorted(told) == [("b/0", "waits"), ("c/0", "dropped"), ("c/0", "waits")]
    (why,) = (told["why"] for _, event, told in sites.log if event == "dropped")
    assert why == f"'c' may have {MOST} instances, and there was no room for 1 more"
    phases = [(me, told["phase"]) for me, event, told in sites.log if event == "phase" and me.endswith("/0")]
    assert [me for me, _ in phases] in (["b/0", "b/0", "c/0", "c/0"], ["c/0", "c/0", "b/0", "b/0"]), phases
    assert not [told for _, event, told in sites.log if event == "refused"]
    assert not [why for site in sites.values() for why in site.stale]


def test_a_keeper_that_comes_back_has_its_turn(sites: Sites) -> None:
    sites.pop("a/0").transport.stop()
    sites["b/0"].protocol.duplicate(1)
    assert not sites["b/0"].protocol.may_decide
    sites.pop("b/0").transport.stop()
    again = sites["b/0"] = Site(sites, "b/0")
    assert again.phase is InstancePhase.RUNNING, "who holds the other side of a lock is not there"
    assert not again.protocol.may_decide
    wait_until(lambda: sites.at_rest() and len(sites) == 4, sites.story)  # a/0 is brought back
    sites.check_views()
    assert sites["a/0"].protocol.state.successors == {"b/0", "b/0.1"}
    assert again.protocol.may_decide
