"""The power fails at any moment of a publication, of a state move, of a journal entry: nothing is lost or doubled.

Between two channels stands what Spark does around a batch, with its files as Spark writes them: renamed into
place, with checksums, and never synced. Everything else is the code that runs.
"""

from __future__ import annotations

import itertools
import json
import shutil
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from elastream.decentralized.spark.outbox import Outbox
from elastream.engines.spark.channels.files import FileChannel
from elastream.engines.spark.channels.segments import StreamPosition
from elastream.engines.spark.lasting_checkpoint import StateFiles, mend, sync_begun, sync_committed
from elastream.engines.spark.state import look, repartition
from elastream.errors import ElastreamError
from elastream.whole_files import VARIABLE, make_folder, read_json, write_json
from power_loss import Disk, Tree, key_of, written

BATCH = 4  # records that a batch reads at most
WITH_CHECKSUMS = True  # as executors on a cluster write; without them as `local[N]` does


def spark_writes(path: Path, text: str) -> None:
    """Beside its place, then renamed: as Spark does on a local disk, Hadoop's files of checksums first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = text.encode()
    checksums = (f".{path.name}.crc", b"crc\x00\x00\x00\x02\x00" + zlib.crc32(content).to_bytes(4, "big"))
    for name, part in (*([checksums] if WITH_CHECKSUMS else ()), (path.name, content)):
        beside = path.with_name(f".{name}.tmp")
        beside.write_bytes(part)
        beside.rename(path.with_name(name))


def newest(folder: Path) -> int:
    return max((int(path.name) for path in folder.glob("[0-9]*")), default=-1)


class Step:
    """Reads a channel and writes another, with a state that counts; what is in the folder is all that it knows."""

    def __init__(self, folder: Path) -> None:
        make_folder(folder / "checkpoints")
        self.input, self.output = FileChannel(folder / "input"), FileChannel(folder / "output")
        self.input.create()
        self.output.create()
        self.checkpoint = folder / "checkpoints" / "step"
        self.mended = mend(self.checkpoint)
        self._state_files = StateFiles(self.checkpoint)

    def put_in(self, *records: int) -> None:
        self.input.append(pa.table({"n": pa.array(records, pa.int64())}))

    def run_batch(self, moment: Callable[[], None] = lambda: None) -> bool:
        """One, or the one that was begun; whether there was any."""
        batch = newest(self.checkpoint / "commits") + 1
        begin = self._end_of(batch - 1)
        offsets = self.checkpoint / "offsets" / str(batch)
        if not offsets.exists():
            end = self.input.log.position(begin, most_records=BATCH)
            self.input.log.acknowledge("step", begin, taken=end.record)
            assert end.record >= begin.record, "the stream was longer before"
            if end.record == begin.record:
                return False
            spark_writes(offsets, f"v1\n{{}}\n{json.dumps(asdict(end))}")
            moment()
        sync_begun(self.checkpoint, batch)
        end = self._end_of(batch)
        schema = pa.schema({"n": pa.int64()})
        found = [n for part in self.input.between(begin, end, schema) for n in part.column("n").to_pylist()]
        assert len(found) == end.record - begin.record
        spark_writes(self._state(batch + 1), str(self._counted(batch) + len(found)))
        moment()
        self.output.append(pa.table({"n": pa.array(found, pa.int64())}), batch=batch)
        self._state_files.sync()
        spark_writes(self.checkpoint / "commits" / str(batch), 'v1\n{"nextBatchWatermarkMs":0}')
        moment()
        return True

    def forget(self) -> None:
        self.input.log.note_acknowledged(["step"])
        sync_committed(self.checkpoint)
        self.input.forget(["step"])

    def _end_of(self, batch: int) -> StreamPosition:
        if batch < 0:
            return StreamPosition()
        text = (self.checkpoint / "offsets" / str(batch)).read_text()
        return StreamPosition(**json.loads(text.splitlines()[2]))

    def _state(self, version: int) -> Path:
        return self.checkpoint / "state" / "0" / "0" / f"{version}.delta"

    def _counted(self, version: int) -> int:
        return int(self._state(version).read_text()) if version else 0

    def put_out(self) -> list[int]:
        return [n for table in self.output.tables() for n in table.column("n").to_pylist()]

    def counted(self) -> int:
        return self._counted(newest(self.checkpoint / "commits") + 1)


class Explorer:
    """Takes every state that a power loss may leave, and checks that all goes on from there."""

    def __init__(self, disk: Disk, folder: Path, check: Callable[[Path], None]) -> None:
        self._disk, self._folder, self._check = disk, folder, check
        self._seen: set[int] = set()

    def __call__(self) -> None:
        for tree in self._disk.states():
            self._one(tree)

    def _one(self, tree: Tree) -> None:
        if (key := key_of(tree)) in self._seen:
            return
        self._seen.add(key)
        folder = written(tree, self._folder / str(len(self._seen)))
        with pytest.MonkeyPatch.context() as patched:
            patched.setenv(VARIABLE, "off")
            self._check(folder)
        shutil.rmtree(folder)

    @property
    def states(self) -> int:
        return len(self._seen)


@contextmanager
def exploring(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, check: Callable[[Path], None], most_states: int = 3
) -> Iterator[tuple[Path, Disk, Explorer]]:
    root, left = tmp_path / "disk", tmp_path / "left"
    root.mkdir()
    left.mkdir()
    disk = Disk(root, most_states=most_states)
    explorer = Explorer(disk, left, check)
    try:
        with disk.recording(monkeypatch, explorer):
            yield root, disk, explorer
    finally:
        disk.close()


class Promised:
    """What was said to be in the stream, and what may be in it as well."""

    def __init__(self) -> None:
        self.sure, self.perhaps = 0, 0

    def check(self, folder: Path) -> None:
        step = Step(folder)
        for batches in itertools.count():
            assert batches < 20, "it does not come to an end"
            if not step.run_batch():
                break
        found = step.put_out()
        assert found == list(range(len(found)))
        assert len(found) in (self.sure, self.perhaps)
        assert step.counted() == len(found)


def run_story(root: Path, disk: Disk, promised: Promised, sizes: tuple[int, ...] = (3, 2)) -> None:
    step = Step(root)
    at = 0
    for size in sizes:
        promised.perhaps = at + size
        step.put_in(*range(at, at + size))
        at = promised.sure = at + size
        while step.run_batch(disk.moment):
            pass
        step.forget()


@pytest.mark.parametrize("checksums", [True, False])
def test_no_record_is_lost_or_doubled_whenever_the_power_fails(
    checksums: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "WITH_CHECKSUMS", checksums)
    promised = Promised()
    with exploring(tmp_path, monkeypatch, promised.check) as (root, disk, explorer):
        run_story(root, disk, promised)
    assert disk.syncs > 30
    assert explorer.states > 50


@pytest.mark.long
def test_no_record_is_lost_or_doubled_in_thousands_of_states(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    promised = Promised()
    with exploring(tmp_path, monkeypatch, promised.check, most_states=64) as (root, disk, explorer):
        run_story(root, disk, promised, (3, 6, 2, 9))
    assert explorer.states > 1_000, f"after {disk.syncs} syncs"


def test_without_syncs_the_same_exploration_finds_what_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the one above can fail."""
    monkeypatch.setenv(VARIABLE, "off")
    promised = Promised()
    with (
        pytest.raises((AssertionError, ElastreamError, OSError, ValueError)),
        exploring(tmp_path, monkeypatch, promised.check) as (root, disk, _),
    ):
        run_story(root, disk, promised)
    assert disk.syncs == 0


@pytest.mark.parametrize("skipped", ["sync_begun", "sync_committed", "StateFiles"])
def test_each_of_the_syncs_around_a_batch_is_needed(
    skipped: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing = SimpleNamespace(sync=lambda: None)
    monkeypatch.setitem(globals(), skipped, lambda *_, **__: nothing)
    promised = Promised()
    with (
        pytest.raises((AssertionError, ElastreamError, OSError, ValueError)),
        exploring(tmp_path, monkeypatch, promised.check, most_states=12) as (root, disk, _),
    ):
        run_story(root, disk, promised)


# Moving state


class MovingManager:
    """Moves what all partitions hold into others, as a batch of its own, and syncs nothing: as Spark does."""

    def repartition(self, where: str, partitions: int) -> None:
        checkpoint = Path(where)
        found = look(checkpoint)
        batch = newest(checkpoint / "commits") + 1
        version = batch  # what the batch before has left
        held = sorted(
            int(line)
            for path in (checkpoint / "state" / "0").glob(f"*/{version}.delta")
            for line in path.read_text().split()
        )
        if found.unfinished is None:
            begin_batch(checkpoint, batch, partitions)
        for number in range(partitions):
            text = "\n".join(str(key) for key in held if key % partitions == number)
            spark_writes(checkpoint / "state" / "0" / str(number) / f"{version + 1}.delta", text)
        spark_writes(checkpoint / "commits" / str(batch), 'v1\n{"nextBatchWatermarkMs":0}')


def begin_batch(checkpoint: Path, batch: int, partitions: int) -> None:
    conf = json.dumps({"conf": {"spark.sql.shuffle.partitions": str(partitions)}})
    spark_writes(checkpoint / "offsets" / str(batch), f"v1\n{conf}\n-")


def spark() -> Any:
    uri = SimpleNamespace(getRawPath=lambda: "", getPath=lambda: "")
    path = SimpleNamespace(toUri=lambda: uri)
    hadoop = SimpleNamespace(hadoop=SimpleNamespace(fs=SimpleNamespace(Path=lambda _: path)))
    jvm = SimpleNamespace(org=SimpleNamespace(apache=hadoop))
    return SimpleNamespace(
        version="4.3", sparkContext=SimpleNamespace(_jvm=jvm), _streamingCheckpointManager=MovingManager()
    )


KEYS = list(range(20))


def settle(checkpoint: Path, wanted: int) -> None:
    """As a query does when it is started."""
    mend(checkpoint)
    found = look(checkpoint)
    if found.unfinished is not None:
        repartition(spark(), checkpoint, found.unfinished)
    if look(checkpoint).partitions != wanted:
        repartition(spark(), checkpoint, wanted)


def check_moved(folder: Path) -> None:
    checkpoint = folder / "checkpoints" / "step"
    settle(checkpoint, 5)
    version = newest(checkpoint / "commits") + 1
    for number in range(5):
        text = (checkpoint / "state" / "0" / str(number) / f"{version}.delta").read_text()
        assert [int(line) for line in text.split()] == [key for key in KEYS if key % 5 == number]


def test_a_state_is_moved_whole_whenever_the_power_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("elastream.engines.spark.state.for_spark", str)
    root = tmp_path / "disk"
    checkpoint = root / "checkpoints" / "step"
    begin_batch(checkpoint, 0, 2)
    for number in range(2):
        held = "\n".join(str(key) for key in KEYS if key % 2 == number)
        spark_writes(checkpoint / "state" / "0" / str(number) / "1.delta", held)
    spark_writes(checkpoint / "commits" / "0", 'v1\n{"nextBatchWatermarkMs":0}')
    (tmp_path / "left").mkdir()
    disk = Disk(root, most_states=4)
    explorer = Explorer(disk, tmp_path / "left", check_moved)
    with disk.recording(monkeypatch, explorer):
        settle(checkpoint, 5)
    disk.close()
    assert explorer.states > 30
    check_moved(root)


# Journals and outboxes of decentralized instances


def test_a_journal_is_as_it_was_or_as_it_is_to_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    allowed: list[int] = []

    def check(folder: Path) -> None:
        found = read_json(folder / "journal.json")
        assert (None if found is None else found["entry"]) in (allowed or [None])

    with exploring(tmp_path, monkeypatch, check) as (root, disk, explorer):
        for entry in range(4):
            allowed[:] = [entry - 1, entry] if entry else [None, entry]  # type: ignore[list-item]
            write_json(root / "journal.json", {"entry": entry, "links": ["x"] * 50})
            allowed[:] = [entry]
            disk.moment()
    assert explorer.states > 8


def test_what_was_shared_out_is_in_one_inbox_whenever_the_power_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    to = ("b/0", "b/1")

    def sent(folder: Path, batch: int, order: tuple[str, ...]) -> None:
        outbox = Outbox(folder / "outbox", lambda address: folder / "lanes" / address)
        outbox.finish()
        outbox.send(batch, pa.table({"n": list(range(10 * batch, 10 * batch + 7))}), order, came_s=1.0)

    def check(folder: Path) -> None:
        for batch in (0, 1):  # Spark runs them again; the view may be another one by now
            sent(folder, batch, tuple(reversed(to)))
        found = []
        for address in to:
            lane = FileChannel(folder / "lanes" / address)
            lane.create()
            found += [n for table in lane.tables() for n in table.column("n").to_pylist()]
        assert sorted(found) == [*range(7), *range(10, 17)]

    with exploring(tmp_path, monkeypatch, check) as (root, _, explorer):
        sent(root, 0, to)
        sent(root, 1, to)
    assert explorer.states > 30
