"""Messages and states as JSON, and back: for connections and journals. What cannot be read is refused with a
reason."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError

from elastream.decentralized.locks import LOCKS, LockSite
from elastream.decentralized.protocol.instance import InstanceState, Turns
from elastream.decentralized.protocol.link import Body
from elastream.decentralized.protocol.messages import (
    CanYouReach,
    Death,
    DeathHeard,
    Deletion,
    DeletionAck,
    Duplication,
    DuplicationAck,
    Start,
    Suspicion,
)
from elastream.decentralized.protocol.neighbour_locks import (
    AskToScale,
    DoneScaling,
    LockedMessage,
    LockMessage,
    MayNotScale,
    MayScale,
)
from elastream.errors import InvalidInput, nearest


class _Kinds:
    """Kinds of values that JSON tells apart by their name."""

    def __init__(self, what: str, named: Iterable[tuple[str, type]]) -> None:
        kinds = dict(named)
        self._what = what
        self._names = {kind: name for name, kind in kinds.items()}
        self._readers: Mapping[str, TypeAdapter[Any]] = {name: TypeAdapter(kind) for name, kind in kinds.items()}

    def write(self, value: Any) -> Body:
        return {"kind": self._names[type(value)], **_plain(value)}

    def read(self, body: Mapping[str, Any]) -> Any:
        kind = body.get("kind")
        if not isinstance(kind, str) or kind not in self._readers:
            raise InvalidInput(f"a {self._what} has a kind, found {kind!r}{nearest(str(kind), self._readers)}")
        return self._validated(kind, {name: value for name, value in body.items() if name != "kind"})

    def _validated(self, kind: str, given: Mapping[str, Any]) -> Any:
        try:
            return self._readers[kind].validate_python(given)
        except ValidationError as error:
            why = error.errors()[0]["msg"]
            raise InvalidInput(f"a {self._what} of the kind {kind} cannot be read: {why}") from None


_ALL = (
    *(Deletion, DeletionAck, Duplication, DuplicationAck, Start),
    *(CanYouReach, Death, DeathHeard, Suspicion),
    *(AskToScale, DoneScaling, LockMessage, MayNotScale, MayScale),
)
_MESSAGES = _Kinds("message", ((kind.__name__, kind) for kind in _ALL))
_LOCK_MESSAGES = _Kinds(
    "message of a lock",
    (
        (f"{name} {kind.__name__.removeprefix(lock.__name__)}", kind)
        for name, lock in LOCKS.items()
        for kind in lock.messages
    ),
)
_LOCK_STATES = _Kinds("lock", ((name, type(lock(LockSite(me="")).initial())) for name, lock in LOCKS.items()))
_STATE, _TURNS = TypeAdapter(InstanceState), TypeAdapter(Turns)


def message_to_json(message: LockedMessage) -> Body:
    body = _MESSAGES.write(message)
    return {**body, "inner": _LOCK_MESSAGES.write(message.inner)} if isinstance(message, LockMessage) else body


def message_from_json(body: Body) -> LockedMessage:
    message: LockedMessage = _MESSAGES.read(body)
    if isinstance(message, LockMessage):
        if not isinstance(message.inner, dict):
            raise InvalidInput(f"a message of a lock is a JSON object, found {type(message.inner).__name__}")
        return LockMessage(message.edge, _LOCK_MESSAGES.read(message.inner))
    return message


def state_to_json(state: InstanceState) -> dict[str, Any]:
    """Without its turns, which stand beside it."""
    return {name: value for name, value in _plain(state).items() if name != "turns"}


def state_from_json(given: Mapping[str, Any]) -> InstanceState:
    return _STATE.validate_python(given)


def turns_to_json(turns: Turns) -> dict[str, Any]:
    return {**_plain(turns), "locks": [_LOCK_STATES.write(lock) for lock in turns.locks]}


def turns_from_json(given: Mapping[str, Any]) -> Turns:
    return _TURNS.validate_python({**given, "locks": [_LOCK_STATES.read(lock) for lock in given["locks"]]})


def _plain(value: Any) -> dict[str, Any]:
    return {field.name: _as_list(getattr(value, field.name)) for field in fields(value)}


def _as_list(item: Any) -> Any:
    """As JSON has only lists; sets are sorted, so that the same value is the same text."""
    if isinstance(item, frozenset):
        return sorted(item)
    if is_dataclass(item):
        return _plain(item)
    return [_as_list(one) for one in item] if isinstance(item, tuple) else item
