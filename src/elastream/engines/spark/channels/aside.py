"""Records that were put aside because an operator fails at them: a dead letter queue beside its input.

    aside/OPERATOR/0000000042.json    of its batch 42: where each lies in its channel, its error, what it holds

The file is the truth. A record that it names is left out whenever the batch is read, and a batch is run again with
the same offsets: so what it puts out is as if the record had never come, once, wherever a driver is killed.
Batches are read one after the other, so only the newest file can name records of the one that is read now.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from elastream.errors import ElastreamError
from elastream.whole_files import make_folder, read_json, write_json


@dataclass(frozen=True, kw_only=True, slots=True)
class AsideRecord:
    channel: str
    position: int
    """How many records lie before it in the channel."""
    error: str
    record: Mapping[str, Any]
    """What it holds, as far as JSON can say it."""


def folder_beside(control: Path) -> Path:
    """Of the step with this control file, for its readers in other processes, which are told where that is."""
    return control.parents[1] / "aside" / control.stem


def put_aside(folder: Path, batch: int, records: Sequence[AsideRecord]) -> None:
    """With those of the batch that were put aside before."""
    make_folder(folder)
    path = _file(folder, batch)
    known = {(one.channel, one.position): one for one in (*_read(path), *records)}
    write_json(path, {"batch": batch, "records": [asdict(one) for _, one in sorted(known.items())]})


def read_aside(folder: Path, *, batch: int | None = None) -> Iterator[AsideRecord]:
    """All of an operator's, the oldest first, or those of one of its batches."""
    for path in _files(folder) if batch is None else [_file(folder, batch)]:
        yield from _read(path)


def positions_aside(folder: Path, channel: str) -> tuple[int, ...]:
    """Of the newest batch that has any, in this channel."""
    newest = _files(folder)[-1:]
    return tuple(one.position for path in newest for one in _read(path) if one.channel == channel)


def _file(folder: Path, batch: int) -> Path:
    return folder / f"{batch:010d}.json"


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.json"))


def _read(path: Path) -> tuple[AsideRecord, ...]:
    if not path.exists():
        return ()
    found = read_json(path)
    if found is None:  # it is synced before it is renamed, so this is no power loss
        raise ElastreamError(f"{path}: records that were put aside were expected, found a torn file")
    return tuple(AsideRecord(**one) for one in found["records"])
