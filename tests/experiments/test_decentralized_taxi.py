"""What the live experiment makes of what it saw: that each of its bounds can fail."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from experiments import decentralized_taxi_spark as taxi

COUNTS = (5, 12, 3)
BEGINS_S = [begin_s for begin_s, _ in taxi._steps()]


def result() -> taxi._Result:
    """As if the count had followed half a minute after each change of the load."""
    moments = [
        taxi._Moment(at_s=float(at_s), instances=_count(at_s), fed=200 * at_s)
        for at_s in range(sum(int(lasts_s) for _, lasts_s, _ in taxi._STRETCHES))
    ]
    killed = {"out": "inZone/0", "in": "inZone/0.1"}
    return taxi._Result(
        story=taxi._Story(moments=moments, killed=killed),
        events=[
            {"at_s": 1.0, "event": "began", "instance": who, "incarnation": 2}
            for who in ("inZone/0", "inZone/0.1")
        ],
        metrics=[
            {"at_s": float(at_s), "instance": "inZone/0", "processed": 40 * at_s} for at_s in range(0, 60, 2)
        ],
        expected=[1, 2, 3],
        found=[1, 2, 3],
    )


def _count(at_s: int) -> int:
    reached = [count for count, begin_s in zip(COUNTS, BEGINS_S, strict=True) if at_s >= begin_s + 30]
    return reached[-1] if reached else 1


def holds(found: taxi._Result) -> bool:
    return all(check.holds for check in (*taxi._count_checks(found), *taxi._record_checks(found)))


def test_a_run_that_followed_holds_and_can_be_drawn(tmp_path: Path) -> None:
    assert holds(result())
    taxi._plot(result(), tmp_path / "taxi.png")
    assert (tmp_path / "taxi.png").stat().st_size > 10_000
    (series,) = taxi._send_rates(result()).values()
    assert {round(rate) for _, rate in series} == {40}


@pytest.mark.parametrize(
    "worse",
    [
        {"found": [1, 2]},
        {"found": [1, 2, 2, 3]},
        {"events": []},
        {"story": replace(result().story, killed={"out": "inZone/0"})},
        {"story": replace(result().story, moments=[replace(m, instances=5) for m in result().story.moments])},
    ],
    ids=["a ride is missing", "one is counted twice", "nobody came back", "one was not killed", "does not follow"],
)
def test_a_run_that_did_not_does_not(worse: dict[str, object]) -> None:
    assert not holds(replace(result(), **worse))  # type: ignore[arg-type]
