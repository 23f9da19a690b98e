"""The statistics of a Google cluster computed by pandas alone, in another way than the query does: at the end of
each interval, over all events before it, the last event of a task on a machine says whether it runs there."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

_NAMES = ["at_us", "missing", "job", "task", "machine", "event_type", "user", "class", "priority"]
_NAMES += ["cpu", "memory", "disk", "different_machine"]
_SUMS = ["tasks", "cpu", "memory", "disk"]
_QUANTILES = {"median": 0.5, "p75": 0.75, "p90": 0.9, "p95": 0.95, "p99": 0.99}


def read_with_pandas(path: Path) -> pd.DataFrame:
    """The events of tasks on a machine that begin, change or end them there."""
    events = pd.read_csv(path, header=None, names=_NAMES, dtype={"machine": "Int64"})
    return events[events["machine"].notna() & events["event_type"].isin([1, 2, 3, 4, 5, 6, 8])]


def expected_results(path: Path, interval_s: int) -> pd.DataFrame:
    """A row for each result: at_s, machine (none of the cluster), statistic and the four sums."""
    events = read_with_pandas(path)
    last_s = int(events["at_us"].max() // (interval_s * 1_000_000)) * interval_s
    found = [_results(events, at_s) for at_s in range(interval_s, last_s + 1, interval_s)]
    return pd.concat(found, ignore_index=True)


def _results(events: pd.DataFrame, at_s: int) -> pd.DataFrame:
    before = events[events["at_us"] < at_s * 1_000_000]
    newest = before.groupby(["machine", "job", "task"], sort=False).tail(1)
    running = newest[newest["event_type"].isin([1, 8])].assign(tasks=1.0).fillna(dict.fromkeys(_SUMS, 0.0))
    machines = running.groupby("machine")[_SUMS].sum().reindex(before["machine"].unique(), fill_value=0.0)
    rows = {"total": machines.sum(), "average": machines.mean()}
    rows |= {name: machines.quantile(share) for name, share in _QUANTILES.items()}
    cluster = pd.DataFrame(rows).T.rename_axis("statistic").reset_index()
    cluster["machine"] = pd.array([pd.NA] * len(cluster), dtype="Int64")
    each = machines.rename_axis("machine").reset_index().assign(statistic="now")
    found = pd.concat([cluster, each], ignore_index=True).assign(at_s=at_s)
    return found[["at_s", "machine", "statistic", *_SUMS]]


def differing(found: pd.DataFrame, expected: pd.DataFrame) -> list[str]:
    """Where results differ by more than rounding, in words; none where every one of them is right."""
    ours, theirs = _by_place(found), _by_place(expected)
    twice = ours.index[ours.index.duplicated()]
    missing, beyond = theirs.index.difference(ours.index), ours.index.difference(theirs.index)
    words = [f"{_words(place)}: found twice" for place in twice]
    words += [f"{_words(place)}: missing" for place in missing]
    words += [f"{_words(place)}: not expected" for place in beyond]
    ours = ours[~ours.index.duplicated()]
    both = theirs.index.intersection(ours.index)
    for name in _SUMS:
        a, b = ours.loc[both, name].astype(float), theirs.loc[both, name].astype(float)
        off = (a - b).abs() > 1e-12 * b.abs().clip(lower=1.0)
        words += [f"{_words(place)}, {name}: found {a[place]}, expected {b[place]}" for place in both[off]]
    return words


def _by_place(results: pd.DataFrame) -> pd.DataFrame:
    # of the cluster there is one of each statistic; -1 is no number of a machine
    machine = results["machine"].astype("Int64").fillna(-1).astype("int64")
    placed = results.assign(at_s=results["at_s"].astype("int64"), machine=machine)
    return placed.set_index(["at_s", "machine", "statistic"]).sort_index()


def _words(place: tuple[int, int, str]) -> str:
    at_s, machine, statistic = place
    return f"at {at_s} s, {'cluster' if machine < 0 else f'machine {machine}'}, {statistic}"
