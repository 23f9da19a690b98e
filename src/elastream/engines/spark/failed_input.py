"""Some of what a batch was to read that failed: the record that the error speaks of, or the first ones.

Which record an error came from Spark does not say. But errors often name a value ("bidder 666 is poison"), and a
record that has it as a value of a column is most likely the one. Looked for in the first thousands of the batch.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from itertools import islice
from typing import Any

MOST_RECORDS = 10_000
"""That are looked through."""
_MOST_SHOWN = 2
_MOST_LETTERS = 160  # of a record
_MOST_OF_A_VALUE = 40
_WORD = re.compile(r"[\w.@:/-]+")

Record = Mapping[str, Any]


def input_text(records: Iterable[Record], reason: str, *, of: str) -> str | None:
    """A sentence about the records of a batch, in the light of why it failed; none where it has none."""
    first: list[Record] = []
    words = {word.strip(".:/-") for word in _WORD.findall(reason)}
    for record in islice(records, MOST_RECORDS):
        if any(_text(value) in words for value in record.values() if _can_be_named(value)):
            return f"the record that it names, from {of}: {shown(record)}"
        if len(first) < _MOST_SHOWN:
            first.append(record)
    return f"its input from {of} begins with {' and '.join(map(shown, first))}" if first else None


def _can_be_named(value: Any) -> bool:
    """A truth value, or nothing at all, says little."""
    return value is not None and not isinstance(value, bool) and _text(value) != ""


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def shown(record: Record) -> str:
    text = ", ".join(f"{name}={_cut(_written(value), _MOST_OF_A_VALUE)}" for name, value in record.items())
    return "{" + _cut(text, _MOST_LETTERS) + "}"


def _written(value: Any) -> str:
    """As people write it, and short: Python's own form of a moment is longer than what is shown of a value."""
    return value.isoformat(sep=" ") if isinstance(value, datetime) else repr(value)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def records_of(batches: Iterable[Any]) -> Iterator[Record]:
    """From batches of Arrow to records, a few at a time."""
    for batch in batches:
        for at in range(0, batch.num_rows, 1000):
            yield from batch.slice(at, 1000).to_pylist()
