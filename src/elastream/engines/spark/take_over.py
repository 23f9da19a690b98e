"""A source that goes on where a plain job stopped: the checkpoint of its query begins with the job's offsets.

Spark itself then does the rest, as at any restart: the next batch reads from the newest committed offset on, and a
source of files knows those that it has seen. Nothing of the job's checkpoint is changed, and nothing else of it is
taken: state, such as windows that were open, belongs to a plan which is now several.

checkpoints/NAME/taken_over.json    from which checkpoint, up to which batch
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from pyspark.sql import DataFrame

from elastream.engines.spark.checkpoint import newest_committed
from elastream.engines.spark.from_checkpoint import FromCheckpoint
from elastream.engines.spark.ledger import Ledger, write_ledger
from elastream.engines.spark.logical_plan import nodes_of, stateful_nodes
from elastream.engines.spark.pipeline import Kind, Pipeline
from elastream.engines.spark.plain_checkpoint import PlainStream, StreamKind, query_of, read_stream
from elastream.engines.spark.workspace import Workspace
from elastream.errors import InvalidInput
from elastream.whole_files import write_json

_log = logging.getLogger(__name__)

_NOTE = "taken_over.json"
_GLOB = re.compile(r"[*?{\[]")


def streams_to_take(
    pipeline: Pipeline, wanted: Sequence[FromCheckpoint], workspace: Workspace
) -> dict[str, PlainStream]:
    """By source; without those that an earlier run in this folder has taken over. Without Spark."""
    found = {}
    for one in wanted:
        name = _source_for(pipeline, one)
        if not _taken_before(one, workspace.checkpoint(name)):
            found[name] = read_stream(one)
    return found


def check_fits(name: str, frame: DataFrame, stream: PlainStream) -> None:
    """Refuse a source that reads something else than the stream that it is to go on with."""
    plan = frame._jdf.queryExecution().analyzed()
    if stateful_nodes(plan):
        raise InvalidInput(f"{name!r} keeps state, which is not taken over: make an operator of that")
    reading = [node for node in nodes_of(plan) if node.isStreaming() and node.children().isEmpty()]
    if len(reading) != 1:
        raise InvalidInput(
            f"{name!r} reads {len(reading)} streams: one was expected, to go on where {stream} ended"
        )
    node = reading[0]
    kind = _kind_of(node)
    if stream.offsets and kind is not stream.kind:
        raise InvalidInput(f"{name!r} reads {_told(kind)}, and {stream} is a stream of {_told(stream.kind)}")
    if kind is StreamKind.KAFKA:
        _check_topics(name, node.extraOptions(), stream)
    elif kind is StreamKind.FILES:
        _check_path(name, node.dataSource().options(), stream)


def take_over(name: str, stream: PlainStream, workspace: Workspace) -> None:
    """Make the checkpoint of a source begin where the stream ended; whole or not at all."""
    place = workspace.checkpoint(name)
    made = place.with_name(f"{name}.tmp")
    for left in (made, place):  # a run that was killed before its first batch
        shutil.rmtree(left, ignore_errors=True)
    for folder in ("offsets", "commits", "sources"):
        (made / folder).mkdir(parents=True)
    (made / "metadata").write_text(json.dumps({"id": str(uuid.uuid4())}), encoding="utf-8")
    for batch, line in stream.offsets:
        own = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": 0, "conf": {}})
        (made / "offsets" / str(batch)).write_text(f"v1\n{own}\n{line}", encoding="utf-8")
        (made / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}', encoding="utf-8")
    if stream.log.is_dir():
        # checksums of Hadoop's are hidden files beside; without them nothing is checked
        shutil.copytree(stream.log, made / "sources" / "0", ignore=shutil.ignore_patterns(".*"))
    note = {
        "checkpoint": str(stream.folder),
        "stream": stream.stream,
        "batch": stream.batch,
        "query": stream.query,
    }
    write_json(made / _NOTE, note)
    if stream.offsets:  # the batches before are none of ours
        write_ledger(workspace.ledger(name), Ledger(batch=stream.batch))
    os.rename(made, place)
    _tell(name, stream)


def _note(stream: PlainStream) -> dict[str, Any]:
    told = {"stream": stream.stream, "batch": stream.batch, "query": stream.query}
    return {"checkpoint": str(stream.folder), **told}


def _tell(name: str, stream: PlainStream) -> None:
    _log.info("%s goes on where batch %d of %s ended", name, stream.batch, stream.folder)
    if stream.unfinished:
        _log.warning(
            "%s: batch %d of %s was begun and not committed: its input is read again, and what its sink may have "
            "written of it comes twice",
            name,
            stream.batch + 1,
            stream.folder,
        )
    if stream.keeps_state:
        _log.warning(
            "%s: the state in %s is not taken over: windows that were open, joins and deduplication begin without "
            "the records before",
            name,
            stream.folder,
        )


def _source_for(pipeline: Pipeline, wanted: FromCheckpoint) -> str:
    sources = [step.name for step in pipeline.steps if step.kind is Kind.SOURCE]
    if wanted.source in sources:
        return str(wanted.source)
    told = ", ".join(sources) or "none"
    if wanted.source is not None:
        raise InvalidInput(f"{wanted.source!r} is no @pipeline.source, expected one of {told}")
    if len(sources) != 1:
        raise InvalidInput(f"SOURCE={wanted} was expected, as the pipeline has {len(sources)} sources: {told}")
    return sources[0]


def _taken_before(wanted: FromCheckpoint, place: Path) -> bool:
    """Refuse a source that has begun otherwise."""
    if not any((place / "offsets").glob("[0-9]*")) and not (place / _NOTE).exists():
        return False
    try:
        note: dict[str, Any] = json.loads((place / _NOTE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        note = {}
    if note.get("checkpoint") != str(wanted.folder) or wanted.stream not in (None, note["stream"]):
        began = f"where {note['checkpoint']} ended" if note else "by itself"
        raise InvalidInput(
            f"{wanted}: {place.name!r} has begun {began} in an earlier run, and goes on behind that; leave the "
            "option out, or choose another --folder"
        )
    _warn_if_it_went_on(wanted.folder, note)
    return True


def _warn_if_it_went_on(folder: Path, note: dict[str, Any]) -> None:
    newest = newest_committed(folder)
    if newest is not None and newest > note["batch"] and query_of(folder) == note["query"]:
        _log.warning(
            "%s: batch %d was taken over, and its job has gone on up to batch %d: what came since is read by both",
            folder,
            note["batch"],
            newest,
        )


def _kind_of(node: Any) -> StreamKind:
    if node.nodeName() == "StreamingRelation":
        return StreamKind.FILES if node.dataSource().options().contains("path") else StreamKind.OTHER
    return StreamKind.KAFKA if node.sourceName() == "kafka" else StreamKind.OTHER


def _told(kind: StreamKind) -> str:
    return "neither Kafka nor files" if kind is StreamKind.OTHER else str(kind)


def _check_topics(name: str, options: Any, stream: PlainStream) -> None:
    """One that is new is well: Spark reads it from its beginning."""
    subscribed, pattern, assigned = (options.get(key) for key in ("subscribe", "subscribePattern", "assign"))
    if pattern is not None:
        others = frozenset(topic for topic in stream.topics if re.fullmatch(pattern, topic) is None)
    else:
        read = json.loads(assigned) if assigned else [one.strip() for one in (subscribed or "").split(",")]
        others = stream.topics - set(read)
    if others:
        raise InvalidInput(
            f"{name!r} reads {pattern or assigned or subscribed}, and {stream} is of the topics "
            f"{', '.join(sorted(stream.topics))}"
        )


def _check_path(name: str, options: Any, stream: PlainStream) -> None:
    """A file that the job has read lies below what the source reads, as far as that is no pattern."""
    written = urlparse(str(options.apply("path")))
    path, a_file = written.path, stream.a_file()
    if a_file is None or not (written.scheme or os.path.isabs(path) or os.path.exists(path)):
        return
    fixed = _GLOB.split(os.path.abspath(unquote(path) if written.scheme else path))[0]
    if not a_file.startswith(fixed):
        raise InvalidInput(f"{name!r} reads {written.geturl()}, and {stream} is of other files, such as {a_file}")
