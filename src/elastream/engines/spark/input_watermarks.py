"""How far each input of a query was in event time, kept over restarts.

Spark's watermark of a query with several inputs is the lowest of theirs. It writes that one down, and keeps those
of each input in memory only: after a restart it does not move on before every input has brought a record again,
and outer rows of a join wait for an input that has fallen silent, where a query that was never stopped would have
put them out. So a query here writes down those of each input as well, and is given them back when it starts
(`watermark_keeper.py`).

    watermarks/NAME.json    the watermarks of the plan, and where each stood after the newest two batches

A batch is written down before Spark commits it. Should it be run again, it begins with what the batch before left:
never with more than was committed. Less would be safe, too, as a watermark that is behind drops nothing. Hence
what belongs to another checkpoint, or to a plan that declares other watermarks, is left alone.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from elastream.whole_files import write_json

_log = logging.getLogger(__name__)

Marks = tuple[int | None, ...]
"""Of each watermark of a plan, in milliseconds since 1970; none before its first record."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DeclaredWatermark:
    """By what a watermark of a plan is known again in the plan of the next run."""

    reads: tuple[str, ...]
    """The channels below it."""
    column: str
    delay_ms: int


@dataclass(frozen=True, kw_only=True, slots=True)
class InputWatermarks:
    query: str
    """Spark's id of the query, which is in its checkpoint."""
    declared: tuple[DeclaredWatermark, ...]
    left_by: Mapping[int, Marks] = field(default_factory=dict)
    """Where they stood after a batch, by its number: the newest, and the one before it."""

    @property
    def newest(self) -> Marks | None:
        return self.left_by[max(self.left_by)] if self.left_by else None

    def with_batch(self, batch: int, marks: Marks) -> InputWatermarks:
        return replace(self, left_by={**self.before(batch).left_by, batch: marks})

    def before(self, batch: int) -> InputWatermarks:
        """Without this batch, which is to run now, and without what came after it."""
        last = max((number for number in self.left_by if number < batch), default=None)
        return replace(self, left_by={} if last is None else {last: self.left_by[last]})

    def following(self, found: InputWatermarks | None, batch: int) -> InputWatermarks:
        """As far as what an earlier run left is about the same watermarks of the same query, which goes on with
        this batch."""
        if found is None or (found.query, found.declared) != (self.query, self.declared):
            return self
        return found.before(batch)


def later(one: Sequence[int | None], other: Sequence[int | None]) -> Marks:
    """The later of each two: a watermark does not go back."""
    pairs = zip(one, other, strict=True)
    return tuple(max((mark for mark in pair if mark is not None), default=None) for pair in pairs)


def write_input_watermarks(path: Path, kept: InputWatermarks) -> None:
    write_json(path, asdict(kept), lasting=False)


def read_input_watermarks(path: Path) -> InputWatermarks | None:
    """None where there is nothing of use: then every input begins anew, as it does in plain Spark."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return InputWatermarks(
            query=str(found["query"]),
            declared=tuple(
                DeclaredWatermark(**{**one, "reads": tuple(one["reads"])}) for one in found["declared"]
            ),
            left_by={int(batch): _marks(marks) for batch, marks in found["left_by"].items()},
        )
    except FileNotFoundError:
        return None
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        _log.warning("%s: watermarks of each input were expected, and are not used: %r", path, error)
        return None


def _marks(found: Sequence[int | None]) -> Marks:
    return tuple(None if mark is None else int(mark) for mark in found)
