"""What other packages bring: policies, engines and kinds of channels, found by their entry points.

    [project.entry-points."elastream.policies"]
    mine = "my_package.my_policy:Mine"

One that cannot be used is left out with a warning that names its package; asked for by its name, it is an error.
An entry point is loaded only when its group is listed, or when it is asked for.
"""

from __future__ import annotations

import importlib
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar

from elastream.errors import InvalidInput, nearest

_log = logging.getLogger(__name__)

Kind = TypeVar("Kind")
LOAD_WITHIN_S = 5.0
"""How long importing what an entry point names may take."""


@dataclass(kw_only=True, eq=False)
class Registry(Mapping[str, Kind], Generic[Kind]):
    """Everything of one kind by name, elastream's own first and then that of others.

    As a mapping it has what can be used. `named` is for a name that a user has given.
    """

    group: str
    """Of the entry points."""
    what: str
    """One of them, in a message: a policy."""
    own: Callable[[], Mapping[str, str | Kind]]
    """elastream's own: each itself, or as `module:object`, which is imported once it is asked for."""
    check: Callable[[str, Any, str], Kind]
    """From the name, what an entry point names and where that is from to what is kept; InvalidInput where it is
    not such a thing."""
    _found: dict[str, Kind | None] = field(default_factory=dict, init=False)
    """What was loaded; None for what could not be."""

    def named(self, name: str) -> Kind:
        """The one of this name; an error says what is wrong with it, or which ones there are."""
        if name in self._own:
            return self._own_one(name)
        if name not in self._others:
            raise InvalidInput(f"unknown {self.what.split(maxsplit=1)[1]} {name!r}{nearest(name, self.names)}")
        return self._other(name)

    @property
    def names(self) -> tuple[str, ...]:
        """All that are declared; nothing is loaded for it."""
        return tuple(sorted({*self._own, *self._others}))

    def __getitem__(self, name: str) -> Kind:
        if name in self._own:
            return self._own_one(name)
        if self._found.get(name, ...) is None or name not in self._others:
            raise KeyError(name)
        try:
            return self._other(name)
        except InvalidInput as error:
            self._found[name] = None
            _log.warning("%s", error)
            raise KeyError(name) from None

    def __iter__(self) -> Iterator[str]:
        return (name for name in self.names if name in self)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.get(name) is not None

    def __len__(self) -> int:
        return sum(1 for _ in self)

    @cached_property
    def _own(self) -> Mapping[str, str | Kind]:
        return self.own()

    def _own_one(self, name: str) -> Kind:
        one = self._own[name]
        if not isinstance(one, str):
            return one
        module, _, attribute = one.partition(":")
        found: Kind = getattr(importlib.import_module(module), attribute)
        return found

    @cached_property
    def _others(self) -> Mapping[str, EntryPoint]:
        """By name; of several with one name the first by package stays, and elastream's own stay in any case."""
        _log.debug("looking for entry points of the group %s", self.group)
        found: dict[str, EntryPoint] = {}
        for point in sorted(entry_points(group=self.group), key=lambda point: (_package(point), point.name)):
            if point.name in self._own:
                _log.warning("%s is left out: elastream has %s of that name", _text(point), self.what)
            elif point.name in found:
                _log.warning("%s is left out: %s has that name", _text(point), _text(found[point.name]))
            else:
                found[point.name] = point
        return found

    def _other(self, name: str) -> Kind:
        known = self._found.get(name)
        if known is None:
            point = self._others[name]
            _log.debug("loading %s", _text(point))
            try:
                known = self.check(name, load_within(point.load, LOAD_WITHIN_S), origin(point))
            except InvalidInput as error:
                raise InvalidInput(f"{_text(point)} cannot be used: {error}") from None
            self._found[name] = known
        return known


def load_within(load: Callable[[], Any], seconds: float) -> Any:
    """What it gives; InvalidInput where it fails, or is not done by then and left to itself."""
    result: list[Any] = []
    failures: list[BaseException] = []

    def work() -> None:
        try:
            result.append(load())
        except BaseException as error:  # of someone else's code, which may even call sys.exit()
            failures.append(error)

    thread = threading.Thread(target=work, name="loading a plug-in", daemon=True)
    thread.start()
    thread.join(seconds)
    if failures:
        raise InvalidInput(f"{type(failures[0]).__name__}: {failures[0]}")
    if not result:
        raise InvalidInput(f"importing it was not done after {seconds:g} s")
    return result[0]


def lacking(found: Any, methods: tuple[str, ...]) -> tuple[str, ...]:
    """Which of the methods the instances of a class would not have."""
    return tuple(name for name in methods if not any(name in vars(base) for base in found.__mro__))


def check_class(found: Any, methods: tuple[str, ...]) -> type[Any]:
    """A class with these methods; InvalidInput says what it is instead, or which it lacks."""
    if not isinstance(found, type):
        raise InvalidInput(f"a class was expected, found {type(found).__name__}")
    if missing := lacking(found, methods):
        raise InvalidInput(f"{found.__name__} lacks {', '.join(missing)}")
    return found


def origin(point: EntryPoint) -> str:
    """Where it comes from: the package with its version."""
    return f"{_package(point)} {point.dist.version}" if point.dist is not None else _package(point)


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else point.module


def _text(point: EntryPoint) -> str:
    return f"the entry point {point.name!r} of {origin(point)} ({point.group}: {point.value})"
