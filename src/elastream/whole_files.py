"""Files that others read while they are written: whole, or as they were before, also when the writer is killed."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def write_whole(path: Path, content: bytes) -> None:
    """Written beside its place and renamed into it; where several processes do so at once, the last one counts."""
    beside = path.with_name(f"{path.name}.tmp{os.getpid()}")
    try:
        beside.write_bytes(content)
        os.replace(beside, path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    write_whole(path, json.dumps(data).encode())
