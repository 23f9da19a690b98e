"""Group mutual exclusion between two groups (the thesis, 5.3): how many are inside, what it costs, how long one
waits.

The thesis ran three algorithms over Kafka. Here the state machines that the explorer checks run over channels with
a stated delay, 3 to 6 ms: a request and its answer then take about the 13 ms that the thesis measured as the wait
where nobody is inside.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import mean

import numpy as np

from elastream.commands.plots import save
from elastream.decentralized.locks import Ra1, Ra2, TwoFgme
from elastream.showing.colours import COLOURS
from experiments.checking.lock_model import MakeLock
from experiments.checking.lock_simulation import LockRun, Timing, run_lock
from experiments.frame import Check, Progress, Report, experiment
from experiments.panels import new_panels

_LOCKS: Mapping[str, MakeLock] = {"2-FGME": TwoFgme, "RA2": Ra2, "RA1": Ra1}
_RUNS = 3  # as in the thesis
_OCCUPANCY_RUNS = 10
_TRAFFIC: Mapping[tuple[int, int], Mapping[str, int]] = {
    (12, 10): {"2-FGME": 2065, "RA2": 3445, "RA1": 2640},
    (12, 18): {"2-FGME": 3748, "RA2": 5176},
    (12, 50): {"2-FGME": 10327, "RA2": 15843},
    (24, 10): {"2-FGME": 8071, "RA2": 13395},
    (6, 10): {},
}
_PAUSE_SHARES = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0)
_INSIDE_S = (1.0, 2.0, 5.0)
_LATENCY_ENTRIES, _LATENCY_LAST = 25, 20
_SLOW_S = (1.0, 10.0)
"""Messages that take up to ten times as long as the critical section."""
_MOST_PER_PAIR_SLOW = 4.0
_OF_A_SKETCH = 0.15
"""How near traffic can be where the thesis only sketches the algorithm."""

_DIFFERS = (
    "RA1's traffic is 2·x·n·(n−1), to the message; the thesis prints n² − 1, which its own 2,640 contradicts.",
    "2-FGME as printed cannot be run for long: it deadlocks or lets both groups in "
    "(docs/decentralized/locks.md). The mended one sends somewhat more: with P equal to the time inside, a group "
    "asks just after the other has left, so that nearly every entry costs a request, an acknowledgement and a "
    "notice of leaving for each competitor, three in all. The thesis has 2.8 to 2.9; requests that arrive before "
    "the exit spare the notice, and over Kafka more do.",
    "RA2 is our reading of a sketch: its traffic is 6 % below the thesis's to 12 % above it.",
    "The thesis's RA1 lets in 3 and 4 of 6; how many depends on the order of the first requests: with one seed of "
    "ten it is everybody.",
)


@dataclass(frozen=True, kw_only=True)
class _Latency:
    lock: str
    inside_s: float
    waits_s: Sequence[float]
    """By the pause, in the order of `_PAUSE_SHARES`."""

    @property
    def slope(self) -> float:
        """Of the wait over the pause, while the pause is shorter than the time inside."""
        short = [
            (share * self.inside_s, w) for share, w in zip(_PAUSE_SHARES, self.waits_s, strict=True) if share <= 1
        ]
        return float(np.polyfit([pause for pause, _ in short], [wait for _, wait in short], 1)[0])

    @property
    def flat_s(self) -> float:
        return max(w for share, w in zip(_PAUSE_SHARES, self.waits_s, strict=True) if share >= 1)


@experiment(
    "fgme",
    paper="Belkhiria's thesis, §5.3, Figures 5.2–5.9",
    question="How many of a group are inside together, at what traffic, after what wait?",
)
def run(tell: Progress) -> Report:
    tell("occupancy", 0.0)
    occupancy = {
        name: [_occupancy(make, seed) for seed in range(_OCCUPANCY_RUNS)] for name, make in _LOCKS.items()
    }
    traffic: dict[tuple[int, int], dict[str, float]] = {}
    for number, (nodes, entries) in enumerate(_TRAFFIC):
        tell(f"traffic of {nodes} nodes, {entries} entries", 0.05 + 0.3 * number / len(_TRAFFIC))
        traffic[nodes, entries] = {name: _traffic(make, nodes, entries) for name, make in _LOCKS.items()}
    tell("slow messages", 0.35)
    slow = {name: _slow(make) for name, make in _LOCKS.items()}
    latencies = []
    for number, name in enumerate(_LOCKS):
        tell(f"latency of {name}", 0.4 + 0.2 * number)
        latencies += [_latency(name, inside_s) for inside_s in _INSIDE_S]
    checks = (
        *(_occupancy_check(name, found) for name, found in occupancy.items()),
        *_traffic_checks(traffic),
        *_slow_checks(slow),
        *_waits(latencies),
    )
    return Report(
        checks=checks,
        differs=_DIFFERS,
        data={
            "most_inside": {name: [one.most_inside for one in found] for name, found in occupancy.items()},
            "traffic": [{"nodes": n, "entries": x, **found} for (n, x), found in traffic.items()],
            "latency": [
                {"lock": found.lock, "inside_s": found.inside_s, "waits_s": list(found.waits_s)}
                for found in latencies
            ],
            "pauses_by_inside": list(_PAUSE_SHARES),
            "messages_per_pair_and_entry_when_slow": slow,
        },
        plot=partial(_plot, {name: found[0] for name, found in occupancy.items()}, traffic, latencies),
    )


def _occupancy(make: MakeLock, seed: int) -> LockRun:
    return run_lock(make, sizes=(6, 6), entries=10, timing=Timing(pause_s=0.3, inside_s=0.3), seed=seed)


def _traffic(make: MakeLock, nodes: int, entries: int) -> float:
    half, timing = nodes // 2, Timing(pause_s=1.0, inside_s=1.0)
    runs = (run_lock(make, sizes=(half, half), entries=entries, timing=timing, seed=seed) for seed in range(_RUNS))
    return mean(found.total for found in runs)


def _slow(make: MakeLock) -> float:
    """Messages for each competitor and entry, at worst over several pauses."""
    timings = [Timing(pause_s=pause, inside_s=1.0, delay_s=_SLOW_S, first_s=20.0) for pause in (0.0, 1.0, 5.0)]
    return max(run_lock(make, sizes=(6, 6), entries=10, timing=t, seed=0).total / (12 * 10 * 6) for t in timings)


def _latency(name: str, inside_s: float) -> _Latency:
    waits = []
    for share in _PAUSE_SHARES:
        timing = Timing(pause_s=share * inside_s, inside_s=inside_s)
        found = run_lock(_LOCKS[name], sizes=(6, 6), entries=_LATENCY_ENTRIES, timing=timing, seed=1)
        waits.append(mean(wait for one in found.waits_s.values() for wait in one[-_LATENCY_LAST:]))
    return _Latency(lock=name, inside_s=inside_s, waits_s=waits)


def _occupancy_check(name: str, found: Sequence[LockRun]) -> Check:
    most = [run.most_inside for run in found]
    first, second = (mean(groups) for groups in zip(*most, strict=True))
    whole = name != "RA1"
    return Check(
        what=f"{name}: most inside together, of 6 and 6, in {len(found)} runs",
        ours=f"{first:.1f} and {second:.1f} on average",
        paper="6 and 6" if whole else "3 and 4",
        bound="6 and 6 in each" if whole else "below 6 on average",
        holds=all(one == (6, 6) for one in most) if whole else max(first, second) < 6,
    )


def _traffic_checks(traffic: Mapping[tuple[int, int], Mapping[str, float]]) -> list[Check]:
    checks = []
    for (nodes, entries), found in traffic.items():
        for name, ours in found.items():
            paper = _TRAFFIC[nodes, entries].get(name)
            bound, holds = _traffic_bound(name, ours, paper, nodes, entries)
            checks.append(
                Check(
                    what=f"messages, {nodes} nodes, {entries} entries: {name}",
                    ours=f"{ours:,.0f}",
                    paper=f"{paper:,}" if paper else "—",
                    bound=bound,
                    holds=holds,
                )
            )
    return checks


def _traffic_bound(name: str, ours: float, paper: int | None, nodes: int, entries: int) -> tuple[str, bool]:
    ra1 = 2 * entries * nodes * (nodes - 1)
    if name == "RA1":
        return f"{ra1:,}", ours == ra1
    if name == "2-FGME":
        near = paper is None or abs(ours / paper - 1) <= 0.1
        return "within 10 %, below RA1" if paper else "below RA1", near and ours < ra1
    most = ra1 + entries * nodes * _ra2_more(nodes)
    near = paper is None or abs(ours / paper - 1) <= _OF_A_SKETCH
    return (f"within {_OF_A_SKETCH:.0%}, " if paper else "") + f"at most {most:,}", near and ours <= most


def _ra2_more(nodes: int) -> int:
    """What an entry under RA2 may cost beyond RA1: it is captured by one captain, each other captain of its group
    may not know that yet and start it again, and it acknowledges every competitor a second time when it leaves."""
    return (nodes // 2 - 1) + nodes // 2


def _slow_checks(slow: Mapping[str, float]) -> list[Check]:
    """With six and six, where every entry has six competitors."""
    exact = 2 * 11 / 6
    bounds = {
        "2-FGME": (f"at most {_MOST_PER_PAIR_SLOW:g}", 0.0, _MOST_PER_PAIR_SLOW),
        "RA1": (f"{exact:.2f}", exact, exact),
        "RA2": (f"at most {exact + _ra2_more(12) / 6:.2f}", 0.0, exact + _ra2_more(12) / 6),
    }
    return [
        Check(
            what=f"{name}: messages for each competitor and entry, messages slower than the time inside",
            ours=f"{found:.2f}",
            bound=bounds[name][0],
            holds=bounds[name][1] - 1e-9 <= found <= bounds[name][2] + 1e-9,
        )
        for name, found in slow.items()
    ]


def _waits(latencies: Sequence[_Latency]) -> list[Check]:
    checks = []
    for found in latencies:
        bound = found.lock != "RA1"
        checks.append(
            Check(
                what=f"{found.lock}, {found.inside_s:g} s inside: slope of the wait over P, and the wait beyond",
                ours=f"{found.slope:.2f}, {found.flat_s * 1000:.0f} ms",
                paper="falls linearly, then about 13 ms" if bound else "higher, scattered",
                bound="−1 ± 10 %, then below 5 % of the time inside" if bound else "",
                holds=not bound or (abs(found.slope + 1) <= 0.1 and found.flat_s < 0.05 * found.inside_s),
            )
        )
    return checks


def _plot(
    occupancy: Mapping[str, LockRun],
    traffic: Mapping[tuple[int, int], Mapping[str, float]],
    latencies: Sequence[_Latency],
    file: Path,
) -> None:
    figure, axes = new_panels(3, 3, title="Group mutual exclusion: occupancy, traffic, latency")
    for axis, (name, found) in zip(axes[0], occupancy.items(), strict=True):
        at_s = [o.at_s for o in found.occupancy]
        for side, sign in ((0, 1), (1, -1)):
            axis.step(at_s, [sign * o.wanting[side] for o in found.occupancy], where="post", color="0.7")
            axis.step(at_s, [sign * o.inside[side] for o in found.occupancy], where="post", color=COLOURS[side])
        axis.set(title=f"{name}: inside (of those that want)", xlabel="s", xlim=(0, 4))
    by_entries, by_nodes, spare = axes[1]
    for name, colour in zip(_LOCKS, COLOURS, strict=False):
        for axis, index, fixed in ((by_entries, 1, 12), (by_nodes, 0, 10)):
            points = sorted((key[index], found[name]) for key, found in traffic.items() if key[1 - index] == fixed)
            axis.plot(*zip(*points, strict=True), "o-", color=colour, markersize=3, label=name)
    by_entries.set(title="messages, 12 nodes", xlabel="entries")
    by_nodes.set(title="messages, 10 entries", xlabel="nodes")
    by_entries.legend(frameon=False, fontsize="small")
    spare.set_visible(False)
    for axis, name in zip(axes[2], _LOCKS, strict=True):
        for latency, colour in zip((one for one in latencies if one.lock == name), COLOURS, strict=False):
            pauses, label = [share * latency.inside_s for share in _PAUSE_SHARES], f"{latency.inside_s:g} s inside"
            axis.plot(pauses, latency.waits_s, "o-", color=colour, markersize=3, label=label)
        axis.set(title=f"{name}: mean wait", xlabel="P, s", ylabel="s")
        axis.legend(frameon=False, fontsize="small")
    save(figure, file)
