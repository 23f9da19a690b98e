"""Nothing is lost and nothing repeated, however often operators are rescaled and the driver is killed.

Numbered records go through a pipeline (`exactly_once_driver.py`) that this process feeds, rescales, kills with all
of its children and starts again. In the end the sinks tell whether every record is there once. `make exactly-once`
runs the long story and a crash in every narrow window; the tests run less of both.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import random
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import exactly_once_driver as program
import pyarrow as pa
from driver_process import DriverProcess
from running import records

from elastream.engines.spark.channels.aside import read_aside
from elastream.engines.spark.channels.control import read_control
from elastream.engines.spark.channels.files import FileChannel
from elastream.engines.spark.channels.kinds import ChannelKind, Files, Kafka
from elastream.engines.spark.crash_points import CrashPoint
from elastream.engines.spark.kafka.broker import Broker
from elastream.engines.spark.state import look
from elastream.engines.spark.workspace import Workspace
from elastream.manager.events import Accounted, event_from_json

_TICK_S = 0.1
_RECORDS_PER_TICK = 10
_MOST_LAG = 100  # so that there is little left to do when the feeding stops, however slow the machine is
_PARALLELISM = (1, 2, 4)  # the last is more than the state has partitions in the beginning


# The driver, as a process


class Driver(DriverProcess):
    def __init__(
        self,
        folder: Path,
        channels: ChannelKind,
        *,
        crash_at: str | None = None,
        state_partitions: int | None = None,
        script: str = program.__file__,
        environment: Mapping[str, str] | None = None,
        more: Sequence[str] = (),
        log: Path | None = None,
    ) -> None:
        """`script` may be another program that is told to stop in the same way, with `more` options."""
        options = [*more, "--kafka", channels.servers] if isinstance(channels, Kafka) else [*more]
        if state_partitions is not None:
            options += ["--state-partitions", str(state_partitions)]
        super().__init__(
            script,
            [str(folder), *options],
            log=folder / "driver.log" if log is None else log,
            crash_at=crash_at,
            environment=environment,
        )


# What goes in, and what has come out


class Feeder:
    """Writes numbers to the feed, as fast as the slowest step reads, until it is told to stop."""

    def __init__(self, folder: Path, channels: ChannelKind) -> None:
        self._folder = folder
        self._feed = Workspace(program.workspace(folder), "exactly_once", channels).channel(program.FEED)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self._to_poison = 0
        self.poisoned = 0
        """Numbers below 0 among those that were written, each another one."""
        self.pausing = False

    def __enter__(self) -> Self:
        self._feed.create()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> int:
        """How many numbers there are that are not below 0."""
        self._stopped.set()
        self._thread.join()
        return self._feed.log.head().records - self.poisoned

    def poison(self) -> None:
        """With the next numbers comes one at which an operator fails."""
        self._to_poison += 1

    def _write(self) -> None:
        while not self._stopped.wait(_TICK_S):
            if self.pausing or max(pending(self._folder)) > _MOST_LAG:
                continue
            first = self._feed.log.head().records - self.poisoned
            below = range(-self.poisoned - self._to_poison, -self.poisoned)
            self._append([*below, *range(first, first + _RECORDS_PER_TICK)])
            self.poisoned += len(below)
            self._to_poison -= len(below)

    def _append(self, numbers: Sequence[int]) -> None:
        """Again where the disk is full, unless the log has them: a driver that starts finishes what was begun."""
        before = self._feed.log.head().records
        while self._feed.log.head().records == before:
            try:
                self._feed.append(pa.table({"id": pa.array(numbers, pa.int64())}))
            except OSError:
                if self._stopped.wait(_TICK_S):
                    raise


def committed(folder: Path) -> dict[str, int]:
    """Of each operator, how many batches Spark has noted as done."""
    found = {}
    for operator in program.OPERATORS:
        commits = (_workspace(folder).checkpoint(operator) / "commits").glob("[0-9]*")
        found[operator] = 1 + max((int(path.name) for path in commits), default=-1)
    return found


def records_in(folder: Path) -> int:
    """How many numbers were written."""
    return _workspace(folder).channel(program.FEED).log.head().records


def pending(folder: Path) -> list[int]:
    """What every step has still to read, in the order of the pipeline, as each adds to what the next has to do."""
    pipeline = program.pipeline(folder)
    return [
        _workspace(folder).channel(read).log.pending(name)
        for name in pipeline.graph().order
        for read in pipeline[name].reads
    ]


def is_drained(folder: Path) -> bool:
    return not any(pending(folder))


def faults(folder: Path, numbers: int) -> list[str]:
    """What is wrong with the sinks, in words: nothing, if every record is there once and every count right."""
    found = [
        *_not_once("the stateless operator", _kept(folder, "marked"), numbers),
        *_not_once("the join", _kept(folder, "pairs"), numbers),
    ]
    last: dict[int, int] = {}
    for key, count in _kept(folder, "counts"):
        if count <= last.get(key, 0):
            found.append(f"the count of key {key} goes from {last.get(key, 0)} to {count}")
        last[key] = count
    expected = Counter(number % program.KEYS for number in range(numbers))
    if last != expected:
        found.append(f"the counts are {last}, they should be {dict(expected)}")
    return found


def account_faults(folder: Path, numbers: int, poisoned: int = 0) -> list[str]:
    """What is wrong with what a driver that was stopped told of where every record went."""
    told = event_from_json(json.loads(program.told_accounts(folder).read_text()))
    assert isinstance(told, Accounted)
    found = list(told.accounts.differences)
    steps = {step.operator: step for step in told.accounts.steps}
    counts = len(_kept(folder, "counts"))
    expected = {
        program.FEED: (None, numbers + poisoned),
        "marked": (numbers + poisoned, numbers),
        "counts": (numbers, counts),
        "pairs": (2 * numbers + poisoned, numbers),
        "kept_marked": (numbers, numbers),
        "kept_counts": (counts, counts),
        "kept_pairs": (numbers, numbers),
    }
    for name, (taken, put) in expected.items():
        step = steps[name]
        if (step.records_in, step.records_out, step.waiting or 0) != (taken, put, 0):
            found.append(
                f"{name} is said to have {step.records_in} in, {step.records_out} out and {step.waiting} waiting, "
                f"it should be {taken}, {put} and 0"
            )
    return found


def aside_faults(folder: Path, poisoned: int) -> list[str]:
    """What is wrong with what was put aside."""
    found = sorted(-one.record["id"] for one in read_aside(_workspace(folder).aside("marked")))
    expected = list(range(1, poisoned + 1))
    return [] if found == expected else [f"put aside were {found} (below 0), they should be {expected}"]


def _not_once(what: str, found: list[tuple[int, ...]], numbers: int) -> Iterator[str]:
    times = Counter(number for number, _ in found)
    lost = [number for number in range(numbers) if number not in times]
    repeated = [number for number, count in times.items() if count > 1]
    wrong = [(number, key) for number, key in found if number >= numbers or key != number % program.KEYS]
    if lost:
        yield f"{what} lost {len(lost)} of {numbers} records: {lost[:10]}"
    if repeated:
        yield f"{what} repeated {len(repeated)} of {numbers} records: {repeated[:10]}"
    if wrong:
        yield f"{what} put out what it should not have: {wrong[:10]}"


def _kept(folder: Path, operator: str) -> list[tuple[int, ...]]:
    """What a sink keeps, in the order in which it came."""
    return list(records(FileChannel(program.kept(folder, operator))))


def _workspace(folder: Path) -> Workspace:
    """For what channels of all kinds have: their logs."""
    return Workspace(program.workspace(folder), "exactly_once")


# The stories


@dataclass(frozen=True, kw_only=True)
class Story:
    kills: int
    rescales: int
    batches: int
    """At least so many of every operator between two kills."""
    seed: int = 1

    def rescales_in(self, life: int) -> int:
        lives = self.kills + 1
        return self.rescales * (life + 1) // lives - self.rescales * life // lives


@dataclass(frozen=True, kw_only=True)
class Ending:
    numbers: int
    """So many records went in."""
    faults: list[str]
    """What is wrong with what came out."""
    batches: dict[str, int]
    took_s: float


def assert_each_once(ending: Ending) -> None:
    assert ending.faults == []
    assert ending.numbers > 0, "something went in"


def _ending(folder: Path, numbers: int, began_s: float) -> Ending:
    return Ending(
        numbers=numbers,
        faults=[*faults(folder, numbers), *account_faults(folder, numbers)],
        batches=committed(folder),
        took_s=time.monotonic() - began_s,
    )


def tell(folder: Path, story: Story, channels: ChannelKind) -> Ending:
    """Live through all rescales and kills, drain, and look at the sinks."""
    began_s = time.monotonic()
    chance = random.Random(story.seed)
    with Feeder(folder, channels) as feeder:
        for life in range(story.kills + 1):
            before = committed(folder)
            with Driver(folder, channels) as driver:
                driver.wait_ready()
                _live(driver, folder, before, story, life, chance)
                if life < story.kills:
                    if chance.random() < 0.5:  # into the middle of a rescale
                        driver.rescale(any_rescale(folder, chance), wait=False)
                    time.sleep(chance.uniform(0, 3 * program.BATCH_INTERVAL_S))
                    continue  # leaving it kills it
                numbers = feeder.stop()
                driver.wait_until(lambda: is_drained(folder), "drained")
                driver.stop()
    return _ending(folder, numbers, began_s)


def _live(
    driver: Driver, folder: Path, before: dict[str, int], story: Story, life: int, chance: random.Random
) -> None:
    """All the rescales of one life of the driver, and the batches between them."""
    parts = story.rescales_in(life) + 1
    for part in range(1, parts + 1):
        wait_further(driver, folder, before, math.ceil(story.batches * part / parts))
        if part < parts:
            driver.rescale(any_rescale(folder, chance))


def wait_further(driver: Driver, folder: Path, before: dict[str, int], batches: int) -> None:
    driver.wait_until(
        lambda: all(count - before[name] >= batches for name, count in committed(folder).items()),
        f"{batches} batches further than {before}",
    )


def any_rescale(folder: Path, chance: random.Random) -> dict[str, int]:
    """Another parallelism for some of the operators."""
    chosen = chance.sample(program.OPERATORS, chance.randint(1, len(program.OPERATORS)))
    now = {name: read_control(_workspace(folder).control(name)).parallelism for name in chosen}
    return {name: chance.choice([count for count in _PARALLELISM if count != now[name]]) for name in chosen}


def crash_in(folder: Path, point: CrashPoint, step: str, channels: ChannelKind) -> Ending:
    """Crash at a point that a step comes by, start again, drain, and look at the sinks."""
    with Feeder(folder, channels) as feeder:
        passing = 1 if point in _OF_A_REPARTITION else 2
        with Driver(folder, channels, crash_at=f"{point}/{step}/{passing}") as driver:
            if point in _OF_A_RESCALE:
                _move_state(driver, folder, step)
            driver.wait_crashed()
        ending = _recover(folder, channels, feeder)
    if point in _OF_A_RESCALE:
        assert state_partitions(folder, step) == 4, "what was begun is done"
    return ending


def kill_in_a_repartition(folder: Path, step: str, channels: ChannelKind) -> Ending:
    """Kill everything while Spark copies the state, start again, drain, and look at the sinks."""
    checkpoint = _workspace(folder).checkpoint(step)
    with Feeder(folder, channels) as feeder:
        with Driver(folder, channels) as driver:
            _move_state(driver, folder, step)
            driver.wait_until(lambda: look(checkpoint).unfinished is not None, "in a repartition")
        assert look(checkpoint).unfinished == 4, "it was done before the kill"
        ending = _recover(folder, channels, feeder)
    assert state_partitions(folder, step) == 4
    return ending


def declare_anew_after_a_crash(folder: Path, channels: ChannelKind) -> Ending:
    """Crash in a batch, and start again with another number of state partitions: the batch must be done first."""
    with Feeder(folder, channels) as feeder:
        with Driver(folder, channels, crash_at=f"{CrashPoint.AFTER_THE_PUBLICATION}/counts/2") as driver:
            driver.wait_crashed()
        assert look(_workspace(folder).checkpoint("counts")).open_batch is not None
        ending = _recover(folder, channels, feeder, declared_partitions=3)
    assert state_partitions(folder, "counts") == 3
    return ending


def state_partitions(folder: Path, step: str) -> int | None:
    return look(_workspace(folder).checkpoint(step)).partitions


def _move_state(driver: Driver, folder: Path, step: str) -> None:
    """Begin a rescale to more instances than there are state partitions."""
    driver.wait_ready()
    driver.wait_until(lambda: committed(folder)[step] > 0, "past its first batch")
    driver.rescale({step: 1})
    driver.rescale({step: 4}, wait=False)


def _recover(
    folder: Path, channels: ChannelKind, feeder: Feeder, *, declared_partitions: int | None = None
) -> Ending:
    """Start again, drain, and look at the sinks."""
    began_s, crashed_with = time.monotonic(), committed(folder)
    with Driver(folder, channels, state_partitions=declared_partitions) as driver:
        driver.wait_ready()
        wait_further(driver, folder, crashed_with, 2)
        numbers = feeder.stop()
        driver.wait_until(lambda: is_drained(folder), "drained")
        driver.stop()
    return _ending(folder, numbers, began_s)


_OF_A_REPARTITION = (CrashPoint.REPARTITION_WANTED, CrashPoint.REPARTITION_DONE)
_OF_A_RESCALE = (CrashPoint.RESCALED, *_OF_A_REPARTITION)

WINDOWS: tuple[tuple[CrashPoint, str], ...] = (
    (CrashPoint.AFTER_THE_TASKS, "counts"),
    (CrashPoint.AFTER_THE_TASKS, "pairs"),
    (CrashPoint.IN_THE_PUBLICATION, "marked"),
    (CrashPoint.IN_THE_PUBLICATION, "counts"),
    (CrashPoint.AFTER_THE_PUBLICATION, "marked"),
    (CrashPoint.AFTER_THE_PUBLICATION, "counts"),
    (CrashPoint.AFTER_THE_PUBLICATION, "pairs"),
    (CrashPoint.AFTER_THE_PUBLICATION, "kept_counts"),
    (CrashPoint.IN_FORGETTING, "marked"),
    (CrashPoint.RESCALED, "counts"),
    (CrashPoint.RESCALED, "pairs"),
    (CrashPoint.REPARTITION_WANTED, "pairs"),
    (CrashPoint.REPARTITION_DONE, "counts"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--rescales", type=int, default=20)
    parser.add_argument("--batches", type=int, default=20, help="of every operator between two kills, at least")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--channels", choices=("files", "kafka"), default="files")
    given = parser.parse_args()
    story = Story(kills=given.kills, rescales=given.rescales, batches=given.batches, seed=given.seed)
    with channels_named(given.channels) as channels:
        _tell_all(story, channels)


def _tell_all(story: Story, channels: ChannelKind) -> None:
    """Everything, on fresh folders; ends at the first fault."""
    with _fresh_folder() as folder:
        ending = tell(folder, story, channels)
    batches = ", ".join(f"{name} {count}" for name, count in ending.batches.items())
    _say(
        f"channels of {channels.name}, {story.kills} kills and {story.rescales} rescales, seed {story.seed} "
        f"(batches: {batches})",
        ending,
    )
    for point, step in WINDOWS:
        with _fresh_folder() as folder:
            _say(f"crash {point} of {step}", crash_in(folder, point, step, channels))
    for step in ("counts", "pairs"):
        with _fresh_folder() as folder:
            _say(f"kill in a repartition of {step}", kill_in_a_repartition(folder, step, channels))
    with _fresh_folder() as folder:
        _say("state partitions declared anew after a crash", declare_anew_after_a_crash(folder, channels))


def _say(what: str, ending: Ending) -> None:
    if ending.faults:
        sys.exit(f"{what}: {'; '.join(ending.faults)}")
    print(f"{what}: {ending.numbers} records, each once; {ending.took_s:.0f} s", flush=True)


@contextlib.contextmanager
def channels_named(name: str) -> Iterator[ChannelKind]:
    if name == "files":
        yield Files()
        return
    with tempfile.TemporaryDirectory(prefix="exactly-once-kafka-") as folder, Broker(Path(folder)) as broker:
        yield Kafka(servers=broker.servers)


@contextlib.contextmanager
def _fresh_folder() -> Iterator[Path]:
    """A folder that is deleted afterwards, unless something fails in it: then it is worth a look."""
    folder = Path(tempfile.mkdtemp(prefix="exactly-once-"))
    print(f"in {folder}: ", end="", flush=True)
    yield folder
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
