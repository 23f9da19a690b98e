"""What one of those who work in a folder finds there, and whether all of them have found the same.

It also runs in tasks on the executors, which are to need as little as possible for it: nothing but Python.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

DRIVER, SPARK = "driver", "spark"
PREFIX = ".same-folder-"
PATIENCE_S = 3.0  # a network file system may show only a moment later what another machine wrote
_POLL_S = 0.1


@dataclass(frozen=True, kw_only=True, slots=True)
class Probe:
    """A folder in the folder in question, where each of them writes the token into a file."""

    folder: Path
    token: str
    patience_s: float = PATIENCE_S

    @property
    def path(self) -> Path:
        return self.folder / f"{PREFIX}{self.token}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Witness:
    """One of those who work in a folder, and what it has found there."""

    who: str
    """In words."""
    file: str
    """That it has written."""
    saw: Mapping[str, str]
    """What it has read in the files of others, or why it could not; of its own, why it could not write it."""


def difference(probe: Probe, witnesses: Sequence[Witness]) -> str | None:
    """Who does not see what another has written, in a sentence; nothing if all see the same."""
    writers = {witness.file: witness.who for witness in witnesses}
    for reader in witnesses:
        for file, found in reader.saw.items():
            if found == probe.token:
                continue
            if file == reader.file:
                return f"{probe.folder}: {reader.who} cannot write there: {found}"
            return (
                f"{probe.folder}: {writers[file]} and {reader.who} do not see the same folder there: what the one "
                f"has written the other does not find ({found or 'empty'}); every node needs this folder at the "
                "same path, on a file system that all of them share, such as NFS"
            )
    return None


def look_in_task(probe: Probe, number: int) -> Witness:
    """Nothing is written where the others' files are not: it would be left behind somewhere."""
    file, saw = f"task-{number}", {}
    for name in (DRIVER, SPARK):
        saw[name] = read_patiently(probe, name)
        if saw[name] != probe.token:
            break
    else:
        try:
            write(probe, file)
        except OSError as error:
            saw[file] = str(error)
    return Witness(who=f"a task on {socket.gethostname()}", file=file, saw=saw)


def read_patiently(probe: Probe, name: str, read: Callable[[str], str] | None = None) -> str:
    """What is in a file; where it cannot be read in time, what is wrong. `read` raises an OSError then."""
    deadline_s = time.monotonic() + probe.patience_s
    while True:
        try:
            found = (probe.path / name).read_text(errors="replace") if read is None else read(name)
        except OSError as error:
            found = str(error)
        if found == probe.token or time.monotonic() > deadline_s:
            return found
        time.sleep(_POLL_S)


def write(probe: Probe, name: str) -> None:
    with (probe.path / name).open("w") as file:
        file.write(probe.token)
        file.flush()
        os.fsync(file.fileno())  # for those who do not read it from this machine
