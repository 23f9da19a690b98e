"""What the driver tells an operator's readers between two batches: its parallelism, and how much to take.

The readers live in processes of Spark's own and are asked anew for every batch, so a small file is enough: the
next batch has as many splits as it says, without a restart and without a pause.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path

from elastream.engines.spark.channels.emulated_delays import Fetches
from elastream.whole_files import read_json, write_json


@dataclass(frozen=True, kw_only=True, slots=True)
class Control:
    parallelism: int = 1
    most_records: int = 200
    """Of a batch, so that a backlog does not become one long batch. It begins small, as nobody knows yet what a
    record costs, and doubles while batches are short."""
    starts: int = 0
    """How often a query with state was started: its first batch is run even without new records (`source.py`)."""
    fetches: Fetches = field(default_factory=Fetches)
    """What its tasks wait for, where delays between nodes are emulated."""


def write_control(path: Path, control: Control) -> None:
    write_json(path, asdict(control), lasting=False)


def read_control(path: Path) -> Control:
    """As it begins, where a power loss has torn it: the engine writes it again when it starts."""
    written = read_json(path)
    if written is None:
        return Control()
    return Control(**{**written, "fetches": Fetches(**written.get("fetches", {}))})
