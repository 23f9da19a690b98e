"""Where every record went: what each step took in, put out, dropped as late and has waiting, and if it adds up.

For every step v and each u that it reads, from the start of a pipeline's folder and across restarts:

    records that u has published  =  records that v has read  +  records that wait for v

The three numbers come from three places, so that a mistake in one of them shows: what the writer counted, what the
engine's own checkpoint says, and what the channel still holds behind what the reader has acknowledged. A step that
passes every record on (a sink that keeps them, a source that copies them) must have put out what it took in, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, kw_only=True, slots=True)
class InputAccount:
    """One of the inputs of a step."""

    producer: str
    published: int
    """By the producer, as its channel counts."""
    read: int
    """By the batches that the engine has committed."""
    waiting: int
    """What the channel holds behind what the reader has acknowledged."""

    @property
    def missing(self) -> int:
        """Below 0 where there are more than were published."""
        return self.published - self.read - self.waiting


@dataclass(frozen=True, kw_only=True, slots=True)
class StepAccount:
    """A step of a pipeline, from the start of the pipeline's folder to the end of a run."""

    operator: str
    inputs: tuple[InputAccount, ...] = ()
    records_in: int | None = None
    """Of all its inputs; of a source, where that is known, what it took from outside."""
    records_out: int | None = None
    """None where nothing is published: nobody reads it, or a function of the user's takes its batches."""
    must_have_put_out: int | None = None
    """Where every record is passed on, and both can be compared."""
    late: int | None = None
    """Dropped because they came behind the watermark: at least as many. None without event time."""
    late_before: int = 0
    """How many of those were dropped by earlier runs in the same folder."""
    uncounted_batches: int = 0
    """Whose late records nobody counted: a run was killed before it was told of them."""
    uncounted_before: int = 0
    """How many of those were known of before this run."""
    aside: int = 0
    """Of the records it read, those that it fails at, which lie in a folder of their own."""

    @property
    def waiting(self) -> int | None:
        return sum(one.waiting for one in self.inputs) if self.inputs else None

    @property
    def differences(self) -> tuple[str, ...]:
        return tuple(_differences(self))

    @property
    def late_now(self) -> int:
        """Dropped as late in this run."""
        return (self.late or 0) - self.late_before


@dataclass(frozen=True, kw_only=True, slots=True)
class Accounts:
    """Of all steps, in the order of the pipeline."""

    steps: tuple[StepAccount, ...]
    faults: tuple[str, ...] = ()
    """Batches of this run that did not read what they were to read, as text."""

    @property
    def differences(self) -> tuple[str, ...]:
        """What does not add up, as text; nothing where every record is accounted for."""
        return (*(text for step in self.steps for text in step.differences), *self.faults)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What was dropped as late in this run or put aside, and where that is not known."""
        return tuple(_warnings(self))


def _differences(step: StepAccount) -> Iterator[str]:
    for one in step.inputs:
        if one.missing:
            yield (
                f"{step.operator}: {one.producer} has published {_records(one.published)}, of which it has read "
                f"{one.read:,} and {one.waiting:,} wait for it: {_off(one.missing)}"
            )
    if step.must_have_put_out is not None and step.records_out is not None:
        missing = step.must_have_put_out - step.records_out
        if missing:
            yield (
                f"{step.operator}: it took in {_records(step.must_have_put_out)}, which it passes on, and has put "
                f"out {step.records_out:,}: {_off(missing)}"
            )


def _off(missing: int) -> str:
    if missing > 0:
        return f"{missing:,} {'is' if missing == 1 else 'are'} missing"
    return f"{-missing:,} too many"


def _warnings(accounts: Accounts) -> Iterator[str]:
    for step in accounts.steps:
        if step.late_now > 0:
            yield late_text(step.operator, step.late_now, step.late_before)
        if step.aside:
            yield (
                f"{step.operator} could not process {_records(step.aside)}: put aside with the error of each, in "
                f"the folder aside/{step.operator} of the run, and in no result"
            )
        uncounted = step.uncounted_batches - step.uncounted_before
        if step.late is not None and uncounted:
            yield (
                f"{step.operator}: how many records it dropped as late in {uncounted:,} "
                f"{'batch' if uncounted == 1 else 'batches'} is not known: a run ended before it was told"
            )


# Late records

_WHAT_TO_DO = (
    "raise the delay of its watermark, or find what moves the watermark ahead of them, such as a record with a "
    "time in the future"
)


def late_text(operator: str, count: int, before: int = 0) -> str:
    """How many, and what to do; `before` were dropped in earlier runs."""
    earlier = f" (and {before:,} in earlier runs)" if before else ""
    return f"{operator} dropped at least {_records(count)} as late{earlier}: {_WHAT_TO_DO}"


def drops_text(operator: str) -> str:
    """While it happens: without a number, so that it stays the same from window to window."""
    return f"{operator} drops records as late: {_WHAT_TO_DO}"


# One batch


class Counted(StrEnum):
    """How often the records of a batch are counted by an engine that counts what its tasks read."""

    ONCE = "once"
    WHOLE_TIMES = "whole times"
    """All of the batch may be run again."""
    AT_LEAST_ONCE = "at least once"
    """A part of it may be run again, such as tasks whose executor was lost."""


def read_fault(
    operator: str, batch: int, producer: str, *, offered: int, read: int, counted: Counted
) -> str | None:
    """What is wrong with what a batch has read of an input, as text; None where it is what it was to read."""
    whole = offered > 0 and read > 0 and read % offered == 0
    right = {
        Counted.ONCE: read == offered,
        Counted.WHOLE_TIMES: read == offered or whole,
        Counted.AT_LEAST_ONCE: read >= offered,
    }[counted]
    if right:
        return None
    off = abs(offered - read)
    lost = f"{off:,} {'was' if off == 1 else 'were'} {'lost' if read < offered else 'read twice'}"
    was = f"its batch {batch} was to read {_records(offered)} of {producer}, and has read {read:,}"
    return f"{operator}: {was}: {lost}"


def _records(count: int) -> str:
    return f"{count:,} record{'' if count == 1 else 's'}"
