"""What a checkpoint tells of its state, and what is taken back of a repartition that Spark refused."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from elastream.engines.spark.state import (
    FoundState,
    RepartitionRefused,
    WantedPartitions,
    look,
    read_wanted,
    repartition,
    take_up_wanted,
    write_wanted,
)
from elastream.errors import ElastreamError


def begin(checkpoint: Path, batch: int, partitions: int) -> None:
    (checkpoint / "offsets").mkdir(parents=True, exist_ok=True)
    settings = json.dumps({"conf": {"spark.sql.shuffle.partitions": str(partitions)}})
    (checkpoint / "offsets" / str(batch)).write_text(f'v1\n{settings}\n{{"offset": 7}}')
    (checkpoint / "offsets" / f".{batch}.crc").touch()


def commit(checkpoint: Path, batch: int) -> None:
    (checkpoint / "commits").mkdir(parents=True, exist_ok=True)
    (checkpoint / "commits" / str(batch)).touch()
    (checkpoint / "commits" / f".{batch}.crc").touch()


def write_state(checkpoint: Path, name: str) -> None:
    folder = checkpoint / "state" / "0" / "3"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).touch()


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Nine and ten batches: in the order of names, ten is not the last."""
    for batch in range(11):
        begin(tmp_path, batch, 4)
        commit(tmp_path, batch)
        write_state(tmp_path, f"{batch + 1}.changelog")
    return tmp_path


def test_a_query_that_was_never_started_has_no_state(tmp_path: Path) -> None:
    assert look(tmp_path) == FoundState(partitions=None, open_batch=None, unfinished=None)


def test_the_first_batch_tells_the_partitions_before_it_is_committed(tmp_path: Path) -> None:
    begin(tmp_path, 0, 4)
    assert look(tmp_path) == FoundState(partitions=4, open_batch=0, unfinished=None)


def test_all_batches_are_committed(checkpoint: Path) -> None:
    assert look(checkpoint) == FoundState(partitions=4, open_batch=None, unfinished=None)


def test_a_batch_is_open(checkpoint: Path) -> None:
    begin(checkpoint, 11, 4)
    assert look(checkpoint) == FoundState(partitions=4, open_batch=11, unfinished=None)


def test_a_repartition_is_unfinished_until_it_is_committed(checkpoint: Path) -> None:
    begin(checkpoint, 11, 8)
    assert look(checkpoint) == FoundState(partitions=4, open_batch=11, unfinished=8)
    commit(checkpoint, 11)
    assert look(checkpoint) == FoundState(partitions=8, open_batch=None, unfinished=None)


def test_offsets_that_cannot_be_read_are_named(checkpoint: Path) -> None:
    (checkpoint / "offsets" / "10").write_text("v1\n{}")
    with pytest.raises(ElastreamError, match="offsets/10: does not tell the partitions"):
        look(checkpoint)


class FakeSpark:
    """Begins a repartition, writes what it is told to, and fails."""

    version = "4.3.0"

    def __init__(self, written: str | None) -> None:
        self._written = written

    @property
    def sparkContext(self) -> Any:  # noqa: N802 - as Spark calls it
        """Whose JVM makes a path of a text: of one that has nothing to escape, the same."""
        path = SimpleNamespace(getRawPath=lambda: "/a", getPath=lambda: "/a")
        fs = SimpleNamespace(Path=lambda _: SimpleNamespace(toUri=lambda: path))
        hadoop = SimpleNamespace(fs=fs)
        return SimpleNamespace(_jvm=SimpleNamespace(org=SimpleNamespace(apache=SimpleNamespace(hadoop=hadoop))))

    @property
    def _streamingCheckpointManager(self) -> FakeSpark:  # noqa: N802 - as Spark calls it
        return self

    def repartition(self, location: str, partitions: int) -> None:
        checkpoint = Path(location.removeprefix("file://"))
        begin(checkpoint, 11, partitions)
        if self._written is not None:
            write_state(checkpoint, self._written)
        raise RuntimeError("Unsupported stateful operator")


def attempt(spark: Any, checkpoint: Path) -> None:
    repartition(spark, checkpoint, 8)


@pytest.mark.parametrize("written", [None, "11.changelog", "120.zip", "000012-1f.sst"])
def test_what_is_refused_before_state_is_written_is_taken_back(checkpoint: Path, written: str | None) -> None:
    before = look(checkpoint)
    with pytest.raises(RepartitionRefused, match="cannot move this state: Unsupported stateful operator"):
        attempt(FakeSpark(written), checkpoint)
    assert look(checkpoint) == before
    assert not (checkpoint / "offsets" / ".11.crc").exists(), "else Spark takes the next batch 11 for damaged"


@pytest.mark.parametrize("written", ["12.zip", "12.changelog", ".12.zip.4f.tmp", "12_3f.zip"])
def test_what_fails_after_state_was_written_is_left_to_be_finished(checkpoint: Path, written: str) -> None:
    with pytest.raises(ElastreamError, match="moving the state to 8 partitions failed") as error:
        attempt(FakeSpark(written), checkpoint)
    assert not isinstance(error.value, RepartitionRefused)
    assert look(checkpoint).unfinished == 8


def test_a_spark_that_cannot_do_it(checkpoint: Path) -> None:
    class Older:
        version = "4.1.0"

    with pytest.raises(RepartitionRefused, match=r"Spark 4\.1\.0 cannot move state"):
        attempt(Older(), checkpoint)


def test_what_is_wanted_outlives_a_restart_until_it_is_declared_anew(tmp_path: Path) -> None:
    path = tmp_path / "counts.json"
    assert read_wanted(path) is None
    assert take_up_wanted(path, declared=4) == read_wanted(path) == WantedPartitions(declared=4, partitions=4)
    write_wanted(path, WantedPartitions(declared=4, partitions=16))
    assert take_up_wanted(path, declared=4).partitions == 16
    assert take_up_wanted(path, declared=6) == read_wanted(path) == WantedPartitions(declared=6, partitions=6)
