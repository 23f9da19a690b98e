"""What tells a folder with checkpoints from every other, also from one that had its place before.

identity    a random word, written once

Spark numbers the batches of a query from 0 in every new checkpoint, so a number alone does not say which batch it
is to someone who outlives the folder, such as what a sink keeps.
"""

from __future__ import annotations

import uuid
from pathlib import Path

from elastream.whole_files import write_whole

_SHORT = 12  # letters of 16: 48 bits


def identity_of(folder: Path) -> str:
    """The same for as long as the folder is there: for the one process that has its lock."""
    path = folder / "identity"
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        made = uuid.uuid4().hex
        write_whole(path, made.encode())
        return made


def short_identity(folder: Path) -> str:
    """For names of files."""
    return identity_of(folder)[:_SHORT]


def unique_batch(folder: Path, batch: int) -> str:
    """The same for a batch that is run again, and for no batch of another folder."""
    return f"{short_identity(folder)}-{batch}"
