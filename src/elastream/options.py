"""Options of policies, of engines, of the manager and of commands: each field is declared once, with its unit,
default and meaning.

From that one declaration come the check of what a user wrote, the parameters of a command
(`commands/signature.py`), `elastream policies NAME`, and the reference pages. An options class is a frozen
dataclass whose fields are made with `option(...)`; one with another options class as a field has its options, too.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any, TypeVar, get_args, get_type_hints

from pydantic import TypeAdapter, ValidationError

from elastream.durations import seconds
from elastream.errors import InvalidInput, nearest


def option(
    default: Any,
    meaning: str,
    *,
    unit: str = "",
    least: float | None = None,
    most: float | None = None,
    name: str = "",
    written: Any = None,
    read: Callable[[Any], Any] | None = None,
) -> Any:
    """Declare one option; `least` and `most` are bounds that are themselves allowed.

    A default that is a class, such as dict, is called for each new value. `name` is what users know it by, where
    that is not the field's. Where a value is not written as it is kept, `written` is the type of what users write,
    and `read` makes the value of it.
    """
    given = {"default_factory": default} if isinstance(default, type) else {"default": default}
    metadata = {"meaning": meaning, "unit": unit, "least": least, "most": most, "name": name}
    return dataclasses.field(**given, metadata={**metadata, "written": written, "read": read})


@dataclass(frozen=True, kw_only=True, slots=True)
class OptionInfo:
    name: str
    default: Any
    unit: str
    meaning: str


@dataclass(frozen=True, kw_only=True, slots=True)
class DeclaredOption:
    """An option, with where it stands in its class, or in a class within that."""

    path: tuple[str, ...]
    info: OptionInfo
    hint: Any
    """The type of its value."""
    written: Any
    """The type of what users write for it."""
    read: Callable[[Any], Any] | None
    within: type[Any]
    """The class that declares it."""


Options = TypeVar("Options")


def declared(options_class: type[Any]) -> tuple[DeclaredOption, ...]:
    """Every option of a class, in the order in which they are declared."""
    hints = get_type_hints(options_class)
    return tuple(
        option
        for field in dataclasses.fields(options_class)
        for option in _declared_by(options_class, field, hints[field.name])
    )


def _declared_by(options_class: type[Any], field: dataclasses.Field[Any], hint: Any) -> Iterator[DeclaredOption]:
    if "meaning" not in field.metadata:
        for inner in declared(hint) if isinstance(hint, type) and dataclasses.is_dataclass(hint) else ():
            yield dataclasses.replace(inner, path=(field.name, *inner.path))
        return
    told = field.metadata
    default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
    info = OptionInfo(name=told["name"] or field.name, default=default, unit=told["unit"], meaning=told["meaning"])
    written = told["written"] or hint
    yield DeclaredOption(
        path=(field.name,), info=info, hint=hint, written=written, read=told["read"], within=options_class
    )


def describe(options_class: type[Any]) -> tuple[OptionInfo, ...]:
    """What there is to say of every option of a class."""
    return tuple(option.info for option in declared(options_class))


def settings_of(options: Any) -> dict[str, Any]:
    """Every option by name, as it is set."""
    return {option.info.name: reduce(getattr, option.path, options) for option in declared(type(options))}


def build(options_class: type[Options], given: Mapping[str, Any], *, place: str = "") -> Options:
    """Make the options from what a user wrote; check names, types and bounds.

    Numbers may come as text. An option in seconds may be written without its `_s`, with a unit: `interval: 5 min`.
    An option of a command may be named as there: `--batch-interval`.
    """
    at = f"{place}: " if place else ""
    known = {option.info.name: option for option in declared(options_class)}
    values: dict[str, Any] = {}
    for written, raw in given.items():
        plain = str(written).removeprefix("--").replace("-", "_")
        name = f"{plain}_s" if f"{plain}_s" in known else plain
        if name not in known:
            raise InvalidInput(f"{at}unknown option {written!r}{nearest(str(written), known)}")
        if name in values:
            raise InvalidInput(f"{at}{name} is given twice")
        values[name] = _read(known[name], raw, f"{at}{written}")
    try:
        made: Options = _made(options_class, {known[name].path: value for name, value in values.items()})
    except InvalidInput as error:
        raise (error.at(place) if place else error) from None
    return made


def _made(options_class: type[Any], values: Mapping[tuple[str, ...], Any]) -> Any:
    """By where they stand: those of a class within this one make that one first."""
    hints = get_type_hints(options_class)
    inner: dict[str, dict[tuple[str, ...], Any]] = {}
    for path, value in values.items():
        inner.setdefault(path[0], {})[path[1:]] = value
    given = {name: found[()] if () in found else _made(hints[name], found) for name, found in inner.items()}
    made = options_class(**given)
    check_bounds(made)
    return made


def _read(option: DeclaredOption, raw: Any, place: str) -> Any:
    try:
        if option.read is None or raw is None:
            return _value(option.hint, option.info, raw)
        return option.read(TypeAdapter(option.written).validate_python(raw))
    except ValidationError as error:
        message = error.errors(include_url=False)[0]["msg"]
        raise InvalidInput(f"{place}: {message}, found {raw!r}") from None
    except InvalidInput as error:
        raise error.at(place) from None
    except ValueError as error:
        raise InvalidInput(f"{place}: {error}") from None


def _value(hint: Any, info: OptionInfo, raw: Any) -> Any:
    if isinstance(raw, str) and raw.lower() == "none":
        raw = None
    elif isinstance(raw, str) and info.unit == "s" and not raw.replace(".", "", 1).isdigit():
        raw = seconds(raw)
    if isinstance(raw, bool) and bool not in (hint, *get_args(hint)):
        raise ValueError(f"must not be true or false, found {raw!r}")
    return TypeAdapter(hint).validate_python(raw)


def check_bounds(options: Any) -> None:
    """For `__post_init__`: refuse values outside the declared bounds, and NaN or infinity anywhere."""
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        if not isinstance(value, int | float) or isinstance(value, bool):
            continue
        name = field.metadata.get("name") or field.name
        least, most = field.metadata.get("least"), field.metadata.get("most")
        if math.isnan(value):
            raise InvalidInput(f"{name} must be a number, found NaN")
        if (least is not None and value < least) or (most is not None and value > most):
            raise InvalidInput(f"{name} must be {_bounds_text(least, most)}, found {value:g}")
        if math.isinf(value):
            raise InvalidInput(f"{name} must be a finite number, found {value}")


def _bounds_text(least: float | None, most: float | None) -> str:
    if least is None:
        return f"at most {most:g}"
    return f"at least {least:g}" if most is None else f"from {least:g} to {most:g}"
