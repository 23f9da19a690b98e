"""How a user names the checkpoint of a plain job whose streams a pipeline goes on with.

--from-checkpoint DIR                     of a job with one stream, for a pipeline with one source
--from-checkpoint clicks=DIR/sources/1    for the source `clicks`, the second stream of the job's plan
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from elastream.engines.spark.local_paths import local_folder
from elastream.errors import InvalidInput

SOURCES = "sources"
"""The folder in a checkpoint in which every stream has its own."""
_NAMED = re.compile(r"([A-Za-z_]\w*)=(.+)", re.DOTALL)


@dataclass(frozen=True, kw_only=True, slots=True)
class FromCheckpoint:
    """As a user writes it: `DIR` or `SOURCE=DIR`, and DIR may end in `sources/N`."""

    source: str | None
    folder: Path
    stream: int | None = None

    def __str__(self) -> str:
        return str(self.folder if self.stream is None else self.folder / SOURCES / str(self.stream))


def from_checkpoint_of(written: Sequence[str]) -> tuple[FromCheckpoint, ...]:
    found = tuple(_from_checkpoint(text) for text in written)
    names = [one.source for one in found]
    if len(set(names)) < len(names) or (None in names and len(names) > 1):
        raise InvalidInput(f"SOURCE=DIR was expected, for each source once, found {', '.join(map(repr, written))}")
    return found


def _from_checkpoint(text: str) -> FromCheckpoint:
    named = _NAMED.fullmatch(text)
    source, where = (named[1], named[2]) if named else (None, text)
    if not where:
        raise InvalidInput("a folder was expected, found nothing")
    if re.match(r"(?!file:)[A-Za-z][A-Za-z0-9+.-]+:/", where):
        raise InvalidInput(
            f"{where}: copy the checkpoint to this machine first, by `hdfs dfs -get` say, and name the copy: "
            "only how far it has read is needed, and nothing in it is changed"
        )
    folder = local_folder(Path(re.sub(r"^file:/+", "/", where)))
    if folder.parent.name == SOURCES and folder.name.isdecimal():
        return FromCheckpoint(source=source, folder=folder.parent.parent, stream=int(folder.name))
    return FromCheckpoint(source=source, folder=folder)
