"""Messages and states as JSON, and back: for connections and journals. What cannot be read is refused with a
reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from pydantic import TypeAdapter, ValidationError

from elastream.decentralized.instance import InstanceState
from elastream.decentralized.link import Body
from elastream.decentralized.messages import Deletion, DeletionAck, Duplication, DuplicationAck, Message, Start
from elastream.errors import InvalidInput, nearest

_KINDS: Mapping[str, TypeAdapter[Any]] = {
    kind.__name__: TypeAdapter(kind) for kind in (Deletion, DeletionAck, Duplication, DuplicationAck, Start)
}
_STATE = TypeAdapter(InstanceState)


def message_to_json(message: Message) -> Body:
    return {"kind": type(message).__name__, **_plain(message)}


def message_from_json(body: Body) -> Message:
    kind = body.get("kind")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise InvalidInput(f"a message has a kind, found {kind!r}{nearest(str(kind), _KINDS)}")
    given = {name: value for name, value in body.items() if name != "kind"}
    try:
        message: Message = _KINDS[kind].validate_python(given)
    except ValidationError as error:
        raise InvalidInput(f"a message of the kind {kind} cannot be read: {error.errors()[0]['msg']}") from None
    return message


def state_to_json(state: InstanceState) -> dict[str, Any]:
    return _plain(state)


def state_from_json(given: Mapping[str, Any]) -> InstanceState:
    return _STATE.validate_python(given)


def _plain(value: Any) -> dict[str, Any]:
    return {field.name: _as_list(getattr(value, field.name)) for field in fields(value)}


def _as_list(item: Any) -> Any:
    """As JSON has only lists; sets are sorted, so that the same value is the same text."""
    if isinstance(item, frozenset):
        return sorted(item)
    return list(item) if isinstance(item, tuple) else item
