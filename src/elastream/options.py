"""Options of policies and of the manager: each field is declared once, with its unit, default and meaning.

From that one declaration come the check of what a user wrote, `elastream policies NAME`, and the reference
pages. An options class is a frozen dataclass whose fields are made with `option(...)`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, get_type_hints

from pydantic import TypeAdapter, ValidationError

from elastream.errors import InvalidInput, nearest


def option(
    default: Any, meaning: str, *, unit: str = "", least: float | None = None, most: float | None = None
) -> Any:
    """Declare one option; `least` and `most` are bounds that are themselves allowed."""
    return dataclasses.field(
        default=default, metadata={"meaning": meaning, "unit": unit, "least": least, "most": most}
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class OptionInfo:
    name: str
    default: Any
    unit: str
    meaning: str


Options = TypeVar("Options")


def describe(options_class: type[Any]) -> tuple[OptionInfo, ...]:
    """Every option of a class, in the order in which they are declared."""
    return tuple(
        OptionInfo(name=f.name, default=f.default, unit=f.metadata["unit"], meaning=f.metadata["meaning"])
        for f in dataclasses.fields(options_class)
        if "meaning" in f.metadata
    )


def build(options_class: type[Options], given: Mapping[str, Any], *, place: str) -> Options:
    """Make the options from what a user wrote (numbers may come as text); check names, types and bounds."""
    hints = get_type_hints(options_class)
    known = {info.name for info in describe(options_class)}
    values = {}
    for name, raw in given.items():
        if name not in known:
            raise InvalidInput(f"{place}: unknown option {name!r}{nearest(name, known)}")
        try:
            values[name] = TypeAdapter(hints[name]).validate_python(None if raw == "none" else raw)
        except ValidationError as error:
            message = error.errors(include_url=False)[0]["msg"]
            raise InvalidInput(f"{place}: {name}: {message}, found {raw!r}") from None
    try:
        return options_class(**values)
    except InvalidInput as error:
        raise error.at(place) from None


def check_bounds(options: Any) -> None:
    """For `__post_init__`: refuse values outside the declared bounds, and NaN anywhere."""
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        if not isinstance(value, int | float) or isinstance(value, bool):
            continue
        least, most = field.metadata.get("least"), field.metadata.get("most")
        if math.isnan(value):
            raise InvalidInput(f"{field.name} must be a number, found NaN")
        if (least is not None and value < least) or (most is not None and value > most):
            bounds = f"at least {least:g}" if most is None else f"from {least or 0:g} to {most:g}"
            raise InvalidInput(f"{field.name} must be {bounds}, found {value:g}")
