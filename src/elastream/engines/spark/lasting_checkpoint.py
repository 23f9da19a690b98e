"""What makes Spark's checkpoint of a query survive a power loss; Spark itself syncs nothing on a local disk.

    offsets/17     synced before batch 17 has any effect: run again, it reads what it read before; with it
                   sources/0/17, where Spark's own sources keep which files that is
    state/         synced after the tasks of a batch, before Spark notes in commits/17 that the batch is done
    commits/17     synced before the input of batch 17 is deleted
    .NAME.moving   beside a checkpoint, while Spark moves its state into other partitions: what it writes then
                   comes to the disk in any order, so that the end of a move counts only once all of it is there

So after a power loss at most the newest offsets or commit is torn, and nothing has come of what it stands for:
`mend` takes it away, and Spark runs the batch. Killed while it writes down its very first batch, Spark leaves a
file with another name (`.0.UUID.tmp`), and refuses to begin beside it: that is taken away, too.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

from elastream.whole_files import is_syncing, read_json, remove_lasting, sync_files, sync_folders, write_json

_CRC_HEADER = b"crc\x00"
_LOGS = ("offsets", "commits")
_YOUNG_S = 600.0  # by far: half a minute is usual, and clocks differ on shared folders


def sync_begun(checkpoint: Path, batch: int) -> None:
    """What a batch is to read lasts; and which query it is of."""
    own = [newest for source in _sources(checkpoint) if (newest := _newest_file(source)) is not None]
    files = [checkpoint / "offsets" / str(batch), checkpoint / "metadata", *own]
    sync_files((path for file in files for path in _with_checksum(file)), missing_ok=True)
    above = [checkpoint / "sources"] if own else []
    sync_folders([checkpoint / "offsets", *(path.parent for path in own), *above, checkpoint, checkpoint.parent])


class StateFiles:
    """Of a checkpoint. What Spark has written of a state it does not write again, so a look at the names tells
    what is new among thousands of files. Of what was there before the first look, what is young counts as new."""

    def __init__(self, checkpoint: Path) -> None:
        self._checkpoint = checkpoint
        self._known: dict[Path, frozenset[str]] = {}

    def sync(self) -> None:
        """What came since the last call lasts."""
        if not is_syncing():
            return
        is_first, files, folders = not self._known, list[Path](), list[Path]()
        for folder, names, below in _looked_through(self._checkpoint / "state"):
            new = names - self._known.get(folder, frozenset())
            if is_first:
                new = frozenset(name for name in new if _is_young(folder / name))
            self._known[folder] = names
            if new:
                files += [folder / name for name in new - below]
                folders.append(folder)
        sync_files(files, missing_ok=True)  # snapshots are renamed meanwhile
        sync_folders([*folders, self._checkpoint] if is_first else folders)


def sync_committed(checkpoint: Path) -> None:
    """That the newest batch is done lasts."""
    newest = _newest_file(checkpoint / "commits")
    if newest is not None:
        sync_files(_with_checksum(newest), missing_ok=True)
        sync_folders([checkpoint / "commits", checkpoint])


def begin_move(checkpoint: Path, batch: int) -> None:
    write_json(_moving(checkpoint), {"batch": batch})


def end_move(checkpoint: Path) -> None:
    """All that Spark has written is on the disk; now it counts."""
    StateFiles(checkpoint).sync()
    for log in _LOGS:
        newest = _newest_file(checkpoint / log)
        sync_files(() if newest is None else _with_checksum(newest), missing_ok=True)
    sync_folders([*(checkpoint / log for log in _LOGS), checkpoint])
    remove_lasting([_moving(checkpoint)])


def abandon_move(checkpoint: Path) -> None:
    """Spark has refused it, and nothing is left of it."""
    remove_lasting([_moving(checkpoint)])


def mend(checkpoint: Path) -> list[str]:
    """Before a query is started: take away what a kill or a power loss has torn. What it was, for the log."""
    mended = _end_torn_move(checkpoint)
    for log in (*_sources(checkpoint), *(checkpoint / name for name in _LOGS)):
        path = _newest_file(log)
        if path is None:
            continue
        if not (_is_whole(path) if log.name in _LOGS else _may_be_whole(path)):
            remove_lasting(_with_checksum(path))
            mended.append(str(path.relative_to(checkpoint)))
        elif not _has_checksum(path):  # torn itself: Hadoop would refuse the file for it
            remove_lasting([_checksum_of(path)])
    begun = _newest_file(checkpoint / "offsets")
    if begun is not None and not (checkpoint / "commits" / begun.name).exists() and not _sources_know(begun):
        remove_lasting(_with_checksum(begun))
        mended.append(f"offsets/{begun.name}")
    return mended + _take_away_first_attempt(checkpoint)


def _take_away_first_attempt(checkpoint: Path) -> list[str]:
    """Of a checkpoint in which no batch was begun: Spark starts only where there is nothing."""
    if any(_newest_file(checkpoint / log) is not None for log in _LOGS):
        return []
    left = [path for name in (*_LOGS, "state") for path in (checkpoint / name).rglob("*") if path.is_file()]
    remove_lasting(left)
    for name in (*_LOGS, "state"):  # even an empty folder of a state partition counts as one
        shutil.rmtree(checkpoint / name, ignore_errors=True)
    return [str(path.relative_to(checkpoint)) for path in left]


def _sources_know(offsets: Path) -> bool:
    """Whether Spark's own sources have what the batch reads: else it was not begun."""
    for number, line in enumerate(offsets.read_text(encoding="utf-8").splitlines()[2:]):
        found = json.loads(line) if line != "-" else {}
        log = offsets.parent.parent / "sources" / str(number)
        if isinstance(found, dict) and "logOffset" in found and log.is_dir():
            newest = _newest_file(log)
            if int(found["logOffset"]) > (-1 if newest is None else _number(newest)):
                return False
    return True


def _end_torn_move(checkpoint: Path) -> list[str]:
    found = read_json(_moving(checkpoint))
    if found is None:
        remove_lasting([_moving(checkpoint)] if _moving(checkpoint).exists() else [])
        return []
    batch, mended = int(found["batch"]), []
    commit, offsets = checkpoint / "commits" / str(batch), checkpoint / "offsets" / str(batch)
    if commit.exists():
        remove_lasting(_with_checksum(commit))
        mended.append(f"commits/{batch}")
    if not (offsets.exists() and _is_whole(offsets)):  # then it did not begin
        remove_lasting([*_with_checksum(offsets), *_of_version(checkpoint / "state", batch + 1)])
    remove_lasting([_moving(checkpoint)])
    return mended


def _moving(checkpoint: Path) -> Path:
    return checkpoint.with_name(f".{checkpoint.name}.moving")


def _of_version(state: Path, version: int) -> list[Path]:
    """A batch writes the version after it; `.18_`, `18.` and so on is what Spark calls its files."""
    name = re.compile(rf"\.?{version}[._]")
    return [path for path in state.rglob("*") if path.is_file() and name.match(path.name)]


def _looked_through(folder: Path) -> Iterator[tuple[Path, frozenset[str], frozenset[str]]]:
    """A folder and those below it: the names in each, and which of them are folders."""
    try:
        entries = list(os.scandir(folder))
    except FileNotFoundError:
        return
    below = frozenset(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    yield folder, frozenset(entry.name for entry in entries), below
    for name in sorted(below):
        yield from _looked_through(folder / name)


def _is_young(path: Path) -> bool:
    """Not on the disk for sure: what is older than that the kernel has long brought there by itself."""
    try:
        return path.stat().st_mtime > time.time() - _YOUNG_S
    except FileNotFoundError:
        return False


def _sources(checkpoint: Path) -> list[Path]:
    return [path for path in (checkpoint / "sources").glob("*") if path.is_dir()]


def _newest_file(log: Path) -> Path | None:
    numbered = (path for path in log.glob("[0-9]*") if path.name.split(".")[0].isdigit())
    return max(numbered, key=_number, default=None)


def _number(path: Path) -> int:
    """Of `17`, and of `19.compact`."""
    return int(path.name.split(".")[0])


def _checksum_of(path: Path) -> Path:
    return path.with_name(f".{path.name}.crc")


def _with_checksum(path: Path) -> tuple[Path, Path]:
    return path, _checksum_of(path)


def _is_whole(path: Path) -> bool:
    """By its checksum where that is whole; else by what stands in it."""
    content = path.read_bytes()
    checksums = _checksums(path)
    if checksums is not None:
        size, told = checksums
        return told == b"".join(_crc(content[at : at + size]) for at in range(0, len(content), size))
    version, *lines = content.decode("utf-8", "replace").rstrip("\n").split("\n")
    return re.fullmatch(r"v\d+", version) is not None and bool(lines) and all(map(_is_json, lines))


def _may_be_whole(path: Path) -> bool:
    """Of a source, which writes what it likes: torn where its checksum says so; without one where nothing stands,
    or what begins as an entry of Spark's does not end as one."""
    if _checksums(path) is not None:
        return _is_whole(path)
    content = path.read_bytes()
    lines = content.decode("utf-8", "replace").split("\n")
    return content != b"" and b"\x00" not in content and all(_is_json(x) for x in lines if x.startswith("{"))


def _has_checksum(path: Path) -> bool:
    return not _checksum_of(path).exists() or _checksums(path) is not None


def _checksums(path: Path) -> tuple[int, bytes] | None:
    """The bytes of a block and the checksums of all, as Hadoop writes them; None where they are not all there."""
    try:
        found = _checksum_of(path).read_bytes()
    except FileNotFoundError:
        return None
    size = int.from_bytes(found[4:8], "big")
    if not found.startswith(_CRC_HEADER) or len(found) < 8 or size == 0 or (len(found) - 8) % 4:
        return None
    blocks = -(-path.stat().st_size // size)
    return (size, found[8:]) if len(found) - 8 >= 4 * blocks and (blocks or len(found) > 8) else None


def _crc(block: bytes) -> bytes:
    return zlib.crc32(block).to_bytes(4, "big")


def _is_json(line: str) -> bool:
    if line == "-":  # of an input that has brought nothing yet
        return True
    try:
        json.loads(line)
    except ValueError:
        return False
    return True
