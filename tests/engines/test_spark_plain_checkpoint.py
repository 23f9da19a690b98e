"""How far a plain job had read, from its checkpoint alone: without Spark, and refused with what was expected."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from elastream import Pipeline
from elastream.engines.spark.checkpoint import newest_committed
from elastream.engines.spark.from_checkpoint import from_checkpoint_of
from elastream.engines.spark.ledger import read_ledger
from elastream.engines.spark.plain_checkpoint import StreamKind, read_stream
from elastream.engines.spark.take_over import streams_to_take, take_over
from elastream.engines.spark.workspace import Workspace
from elastream.errors import InvalidInput

CLICKS = '{"clicks":{"0":70,"1":64}}'
FILES = '{"logOffset":4}'


def checkpoint(folder: Path, offsets: dict[int, list[str]], *, committed: int | None) -> Path:
    for name in ("offsets", "commits"):
        (folder / name).mkdir(parents=True)
    (folder / "metadata").write_text('{"id":"a-query"}')
    for batch, lines in offsets.items():
        own = json.dumps({"batchWatermarkMs": 17, "batchTimestampMs": 18, "conf": {}})
        (folder / "offsets" / str(batch)).write_text("\n".join(["v1", own, *lines]))
        if committed is not None and batch <= committed:
            (folder / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    return folder


def read(written: str) -> Any:
    return read_stream(from_checkpoint_of([written])[0])


def source(pipeline: Pipeline, *names: str) -> Pipeline:
    for name in names:

        def function(spark: Any) -> Any: ...

        function.__name__ = name
        pipeline.source(function)
    return pipeline


def test_the_newest_committed_batch_counts(tmp_path: Path) -> None:
    offsets = {6: ['{"clicks":{"0":50,"1":60}}'], 7: [CLICKS], 8: ['{"clicks":{"0":99,"1":99}}']}
    found = read(str(checkpoint(tmp_path / "ck", offsets, committed=7)))
    assert (found.batch, found.offsets[-1]) == (7, (7, CLICKS))
    assert found.unfinished
    assert (found.kind, found.topics) == (StreamKind.KAFKA, {"clicks"})
    assert not found.keeps_state


def test_one_of_several_streams_is_named_by_its_folder(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "ck", {0: [CLICKS, "-"], 1: [CLICKS, FILES]}, committed=1)
    with pytest.raises(InvalidInput, match=r"reads 2 streams, say which.*sources/0 \(Kafka: clicks\); sources/1"):
        read(str(folder))
    found = read(f"{folder}/sources/1")
    assert found.offsets == ((1, FILES),), "before that it had brought nothing"
    assert found.kind is StreamKind.FILES
    with pytest.raises(InvalidInput, match="no such stream"):
        read(f"{folder}/sources/2")


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (lambda folder: None, "no such folder"),
        (lambda folder: (folder / "part-0.parquet").mkdir(parents=True), "expected, .*, found part-0.parquet"),
        (lambda folder: checkpoint(folder, {0: [CLICKS]}, committed=None), "no batch .* is committed"),
    ],
)
def test_what_is_no_checkpoint_is_refused(tmp_path: Path, made: Any, says: str) -> None:
    made(tmp_path / "ck")
    with pytest.raises(InvalidInput, match=says):
        read(str(tmp_path / "ck"))


def test_another_version_of_offsets_is_refused(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "ck", {0: [CLICKS]}, committed=0)
    (folder / "offsets" / "0").write_text("v2\n{}\n{}")
    with pytest.raises(InvalidInput, match=r"version v1 .* found \['v2'\]"):
        read(str(folder))


def test_how_it_is_written() -> None:
    assert [str(one) for one in from_checkpoint_of(["a=/x/ck", "b=/x/ck/sources/1"])] == [
        "/x/ck",
        "/x/ck/sources/1",
    ]
    assert from_checkpoint_of(["file:///x/day=1"])[0].source is None
    with pytest.raises(InvalidInput, match="for each source once"):
        from_checkpoint_of(["/a", "/b"])
    with pytest.raises(InvalidInput, match="copy the checkpoint to this machine"):
        from_checkpoint_of(["s3a://bucket/ck"])


def test_for_which_source_it_is(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "ck", {0: [CLICKS]}, committed=0)
    workspace = Workspace(tmp_path / "run", "p")
    one, two = source(Pipeline("p"), "clicks"), source(Pipeline("p"), "clicks", "views")
    assert list(streams_to_take(one, from_checkpoint_of([str(folder)]), workspace)) == ["clicks"]
    with pytest.raises(InvalidInput, match=r"SOURCE=.* was expected, .* 2 sources: clicks, views"):
        streams_to_take(two, from_checkpoint_of([str(folder)]), workspace)
    with pytest.raises(InvalidInput, match=r"'click' is no @pipeline.source, expected one of clicks, views"):
        streams_to_take(two, from_checkpoint_of([f"click={folder}"]), workspace)


def test_it_is_taken_once_and_the_job_that_goes_on_is_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = checkpoint(tmp_path / "ck", {6: [CLICKS], 7: [CLICKS]}, committed=7)
    (folder / "state" / "0").mkdir(parents=True)
    pipeline, workspace = source(Pipeline("p"), "clicks"), Workspace(tmp_path / "run", "p")
    workspace.open()
    wanted = from_checkpoint_of([str(folder)])
    with caplog.at_level(logging.INFO, logger="elastream"):
        take_over("clicks", streams_to_take(pipeline, wanted, workspace)["clicks"], workspace)
    assert "clicks goes on where batch 7" in caplog.messages[0]
    assert "the state in" in caplog.messages[1]
    assert newest_committed(workspace.checkpoint("clicks")) == 7
    assert read_ledger(workspace.ledger("clicks")).batch == 7, "those of the plain job are none of its own"
    caplog.clear()
    assert streams_to_take(pipeline, wanted, workspace) == {}
    assert caplog.messages == []
    (folder / "commits" / "8").write_text("v1\n{}")
    assert streams_to_take(pipeline, wanted, workspace) == {}
    assert "has gone on up to batch 8" in caplog.messages[0]
    workspace.close()


def test_a_source_that_began_otherwise_is_refused(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "ck", {0: [CLICKS]}, committed=0)
    pipeline, workspace = source(Pipeline("p"), "clicks"), Workspace(tmp_path / "run", "p")
    checkpoint(workspace.checkpoint("clicks"), {0: [CLICKS]}, committed=0)
    with pytest.raises(InvalidInput, match=r"'clicks' has begun by itself in an earlier run.*another --folder"):
        streams_to_take(pipeline, from_checkpoint_of([str(folder)]), workspace)
