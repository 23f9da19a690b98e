"""Options of policies and of the manager: each field is declared once, with its unit, default and meaning.

From that one declaration come the check of what a user wrote, `elastream policies NAME`, and the reference
pages. An options class is a frozen dataclass whose fields are made with `option(...)`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, get_args, get_type_hints

from pydantic import TypeAdapter, ValidationError

from elastream.durations import seconds
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


def settings_of(options: Any) -> dict[str, Any]:
    """Every option by name, as it is set."""
    return {info.name: getattr(options, info.name) for info in describe(type(options))}


def build(options_class: type[Options], given: Mapping[str, Any], *, place: str) -> Options:
    """Make the options from what a user wrote; check names, types and bounds.

    Numbers may come as text. An option in seconds may be written without its `_s`, with a unit: `interval: 5 min`.
    """
    hints = get_type_hints(options_class)
    known = {info.name: info for info in describe(options_class)}
    values = {}
    for written, raw in given.items():
        name = f"{written}_s" if f"{written}_s" in known else written
        if name not in known:
            raise InvalidInput(f"{place}: unknown option {written!r}{nearest(str(written), known)}")
        if name in values:
            raise InvalidInput(f"{place}: {name} is given twice")
        try:
            values[name] = _value(hints[name], known[name], raw)
        except ValidationError as error:
            message = error.errors(include_url=False)[0]["msg"]
            raise InvalidInput(f"{place}: {written}: {message}, found {raw!r}") from None
        except ValueError as error:
            raise InvalidInput(f"{place}: {written}: {error}") from None
    try:
        return options_class(**values)
    except InvalidInput as error:
        raise error.at(place) from None


def _value(hint: Any, info: OptionInfo, raw: Any) -> Any:
    if isinstance(raw, str) and raw.lower() == "none":
        raw = None
    elif isinstance(raw, str) and info.unit == "s" and not raw.replace(".", "", 1).isdigit():
        raw = seconds(raw)
    if isinstance(raw, bool) and bool not in (hint, *get_args(hint)):
        raise ValueError(f"must not be true or false, found {raw!r}")
    return TypeAdapter(hint).validate_python(raw)


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
            raise InvalidInput(f"{field.name} must be {_bounds_text(least, most)}, found {value:g}")


def _bounds_text(least: float | None, most: float | None) -> str:
    if least is None:
        return f"at most {most:g}"
    return f"at least {least:g}" if most is None else f"from {least:g} to {most:g}"
