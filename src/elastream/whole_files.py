"""Files that others read while they are written: whole, or as they were before, also when the writer is killed.

What is `lasting` survives a power loss as well: its content is on the disk before its name is, and its name before
the call returns. What is not may be gone or torn afterwards, and who reads it has to cope: `read_json` takes a
torn file for one that is not there.

ELASTREAM_SYNC=off, in the environment, waits for no disk: kills are survived as before, power losses are not.
"""

from __future__ import annotations

import errno
import json
import logging
import os
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

_log = logging.getLogger(__name__)

VARIABLE = "ELASTREAM_SYNC"
_AT_ONCE = 8
_CANNOT_BE_SYNCED = (errno.EINVAL, errno.ENOTSUP)  # folders, on some file systems


def is_syncing() -> bool:
    return os.environ.get(VARIABLE, "on") != "off"


def write_whole(path: Path, content: bytes, *, lasting: bool = True) -> None:
    """Written beside its place and renamed into it; where several processes do so at once, the last one counts."""
    beside = path.with_name(f"{path.name}.tmp{os.getpid()}")
    try:
        with beside.open("wb") as file:
            file.write(content)
            file.flush()
            if lasting and is_syncing():
                os.fsync(file.fileno())
        os.replace(beside, path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise
    if lasting:
        sync_folders([path.parent])


def write_json(path: Path, data: Mapping[str, Any], *, lasting: bool = True) -> None:
    write_whole(path, json.dumps(data).encode(), lasting=lasting)


def read_json(path: Path) -> dict[str, Any] | None:
    """None where there is none, or where a power loss has left a part of it."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        found = json.loads(content)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        _log.warning("%s: is torn (%d bytes), as by a power loss; it is not used", path, len(content))
        return None
    return found


def make_folder(path: Path) -> None:
    """With those above it; each that is new lasts."""
    new = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    sync_folders([folder.parent for folder in reversed(new)])


def remove_lasting(paths: Iterable[Path]) -> None:
    found = list(paths)
    for path in found:
        path.unlink(missing_ok=True)
    sync_folders({path.parent for path in found})


def sync_files(paths: Iterable[Path], *, missing_ok: bool = False) -> None:
    """Bring what is in these files to the disk; all at once, as a file system then does it in one go."""
    if not is_syncing():
        return
    found = list(paths)
    if len(found) == 1:
        _sync(found[0], missing_ok=missing_ok)
    elif found:
        list(_threads().map(lambda path: _sync(path, missing_ok=missing_ok), found))


def sync_folders(folders: Iterable[Path]) -> None:
    """Bring the names in these folders to the disk: without that a new or renamed file may be gone."""
    sync_files(folders, missing_ok=True)


def _sync(path: Path, *, missing_ok: bool) -> None:
    try:
        opened = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        if missing_ok:
            return
        raise
    try:
        os.fsync(opened)
    except OSError as error:
        if error.errno not in _CANNOT_BE_SYNCED:
            raise
    finally:
        os.close(opened)


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="elastream-sync")
