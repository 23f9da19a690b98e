"""The checkpoint of a plain `writeStream` job, of which a pipeline takes over how far it has read.

What counts is the newest batch that is committed: a batch that was begun and not committed is read again, as the
plain job itself would do. Read here without Spark, so that what is wrong is said before it is started.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from elastream.engines.spark.checkpoint import NOTHING_YET, OWN_LINES, newest_committed, offset_lines
from elastream.engines.spark.from_checkpoint import SOURCES, FromCheckpoint
from elastream.errors import InvalidInput

_VERSION = "v1"
_COMPACT = ".compact"
_SHOWN = 3  # names of what is in a folder that is no checkpoint


class StreamKind(StrEnum):
    KAFKA = "Kafka"
    FILES = "files"
    OTHER = "another kind"


@dataclass(frozen=True, kw_only=True, slots=True)
class PlainStream:
    """One stream of a plain job, and how far it had read."""

    folder: Path
    """The checkpoint of the job."""
    stream: int
    batch: int
    """The newest that is committed."""
    offsets: tuple[tuple[int, str], ...]
    """Of that batch and the one before it, as Spark writes them; none where nothing was read yet."""
    query: str
    """The id of the job's query."""
    unfinished: bool
    """Whether a later batch was begun."""
    keeps_state: bool

    @property
    def log(self) -> Path:
        """Where Spark keeps what the stream knows beside its offset: files that it has seen, where Kafka began."""
        return self.folder / SOURCES / str(self.stream)

    @property
    def kind(self) -> StreamKind:
        return _kind(self.offsets[-1][1]) if self.offsets else StreamKind.OTHER

    @property
    def topics(self) -> frozenset[str]:
        return frozenset(json.loads(self.offsets[-1][1])) if self.kind is StreamKind.KAFKA else frozenset()

    def a_file(self) -> str | None:
        """One of the newest files that were read, as a path without a scheme; None where none is told."""
        told = [path for path in self.log.glob("[0-9]*") if path.name.removesuffix(_COMPACT).isdigit()]
        for path in sorted(told, key=lambda path: int(path.name.removesuffix(_COMPACT)), reverse=True):
            entries = path.read_text(encoding="utf-8").splitlines()[1:]
            if entries:
                return unquote(urlparse(str(json.loads(entries[-1])["path"])).path)
        return None

    def __str__(self) -> str:
        return f"{self.folder / SOURCES / str(self.stream)}"


def read_stream(wanted: FromCheckpoint) -> PlainStream:
    """Refused where it is no checkpoint, or where it is not said which of several streams is meant."""
    folder = wanted.folder
    _check_is_one(folder)
    batch = newest_committed(folder)
    if batch is None:
        raise InvalidInput(f"{folder}: no batch of this checkpoint is committed, so there is nothing to take over")
    newest = _offsets(folder, batch)
    stream = _chosen(wanted, newest)
    before = _offsets(folder, batch - 1) if (folder / "offsets" / str(batch - 1)).exists() else []
    told = [(batch - 1, before), (batch, newest)]
    lines = tuple((number, lines[stream]) for number, lines in told if len(lines) > stream)
    return PlainStream(
        folder=folder,
        stream=stream,
        batch=batch,
        offsets=tuple((number, line) for number, line in lines if line != NOTHING_YET),
        query=query_of(folder),
        unfinished=(folder / "offsets" / str(batch + 1)).exists(),
        keeps_state=any((folder / "state").glob("[0-9]*")),
    )


def query_of(folder: Path) -> str:
    try:
        return str(json.loads((folder / "metadata").read_text(encoding="utf-8"))["id"])
    except (OSError, ValueError, LookupError, TypeError):
        raise InvalidInput(f"{folder}: not the checkpoint of a query: its file metadata cannot be read") from None


def _check_is_one(folder: Path) -> None:
    if not folder.is_dir():
        raise InvalidInput(f"{folder}: there is no such folder")
    if not (folder / "offsets").is_dir():
        seen = sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
        found = ", ".join(seen[:_SHOWN] + (["..."] if len(seen) > _SHOWN else [])) or "nothing"
        raise InvalidInput(
            f"{folder}: the checkpointLocation of a job was expected, with offsets and commits, found {found}"
        )


def _offsets(folder: Path, batch: int) -> list[str]:
    path = folder / "offsets" / str(batch)
    try:
        lines = offset_lines(folder, batch)
    except OSError as error:
        raise InvalidInput(f"{path}: cannot be read: {error.strerror}") from None
    if len(lines) <= OWN_LINES or lines[0] != _VERSION:
        raise InvalidInput(
            f"{path}: offsets of version {_VERSION} were expected, a line for each stream, found {lines[:1]}"
        )
    return lines[OWN_LINES:]


def _chosen(wanted: FromCheckpoint, lines: Sequence[str]) -> int:
    if wanted.stream is None and len(lines) == 1:
        return 0
    told = "; ".join(f"sources/{number} ({_told(line)})" for number, line in enumerate(lines))
    if wanted.stream is None:
        raise InvalidInput(
            f"{wanted.folder}: its job reads {len(lines)} streams, say which, such as "
            f"{wanted.folder}/sources/0: {told}"
        )
    if wanted.stream >= len(lines):
        raise InvalidInput(f"{wanted}: there is no such stream, expected one of {told}")
    return wanted.stream


def _told(line: str) -> str:
    if line == NOTHING_YET:
        return "nothing read yet"
    kind = _kind(line)
    return f"Kafka: {', '.join(sorted(json.loads(line)))}" if kind is StreamKind.KAFKA else str(kind)


def _kind(line: str) -> StreamKind:
    try:
        told: Any = json.loads(line)
    except ValueError:
        return StreamKind.OTHER
    if not isinstance(told, dict) or not told:
        return StreamKind.OTHER
    if set(told) == {"logOffset"}:
        return StreamKind.FILES
    by_partition = all(isinstance(one, dict) and all(key.isdecimal() for key in one) for one in told.values())
    return StreamKind.KAFKA if by_partition else StreamKind.OTHER
