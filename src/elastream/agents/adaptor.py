"""The adaptor to an engine: the four calls of section 4.3.4 of the SEEP thesis, and nothing else.

An object that has them can be scaled by the master. Every engine of the manager's port has them through
`EngineAdaptor`: the simulated one, Spark, and whatever else passes the contract.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Protocol

from elastream.agents.rounds import InstanceReading
from elastream.errors import ElastreamError
from elastream.manager.decision import Decision
from elastream.manager.engine import Engine

_STILL_THERE = 10  # rounds


class Adaptor(Protocol):
    def operators(self) -> Sequence[str]:
        """The operators that run and may be scaled."""

    def current_size(self, operator: str) -> int:
        """How many instances of it there are."""

    def original_size(self, operator: str) -> int:
        """How many there were when it began: what limits that are multiples of it refer to."""

    def set_size(self, operator: str, size: int) -> None:
        """Let there be so many; asking a second time changes nothing. What cannot be done is an ElastreamError."""


class EngineAdaptor:
    """Any engine of the manager's port; how many instances there are when this is made is the original size."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._original = engine.plan()
        self._changes = 0

    def operators(self) -> Sequence[str]:
        return self._engine.graph().scalable

    def current_size(self, operator: str) -> int:
        return self._engine.plan()[operator]

    def original_size(self, operator: str) -> int:
        return self._original[operator]

    def set_size(self, operator: str, size: int) -> None:
        before = self._engine.plan()
        self._changes += 1
        decision = Decision(
            number=self._changes, at_s=0.0, before=before, after=before.with_changes({operator: size})
        )
        outcome = self._engine.rescale(decision)
        if not outcome.succeeded:
            raise ElastreamError(outcome.detail or f"{operator} could not be given {size} instances")


class ReportedSizes:
    """Where no engine is given: the operators that agents read for, as large as agents make them look.

    Good for a dry run, in which the master says what it would do; it cannot do it. An instance that was not heard
    for a few rounds still counts, or an agent that is late once would look like a scale-in.
    """

    def __init__(self) -> None:
        self._rounds = 0
        self._heard: dict[tuple[str, int], int] = {}
        """In which round last, by operator and instance."""
        self._current: dict[str, int] = {}
        self._original: dict[str, int] = {}

    def see(self, readings: Iterable[InstanceReading]) -> None:
        """Of one more round."""
        self._rounds += 1
        self._heard.update({(reading.operator, reading.instance): self._rounds for reading in readings})
        self._heard = {key: last for key, last in self._heard.items() if self._rounds - last < _STILL_THERE}
        sizes = Counter(operator for operator, _ in self._heard)
        self._current.update(sizes)  # one without any stays as it was: nobody knows
        self._original = {**sizes, **self._original}

    def operators(self) -> Sequence[str]:
        return tuple(self._current)

    def current_size(self, operator: str) -> int:
        return self._current[operator]

    def original_size(self, operator: str) -> int:
        return self._original[operator]

    def set_size(self, operator: str, size: int) -> None:
        raise ElastreamError(f"{operator} stays as it is: no engine was given that could scale it")
