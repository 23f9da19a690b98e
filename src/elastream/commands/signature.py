"""The parameters of a command, made from the classes that declare its options.

    @from_options
    def run(file: Annotated[Path, typer.Argument()], spark: SparkOptions) -> None: ...

has an option for each field of `SparkOptions`, and is called with the options as a whole. A field is declared by
`options.option`, as an `Annotated` type with typer's own `Option`, or as another such class. The options of one
class are shown together, in the panel that it names as `PANEL`.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer
from typer.models import ParameterInfo

from elastream.durations import text as duration_text
from elastream.options import DeclaredOption, build, declared


def from_options(function: Callable[..., None]) -> Callable[..., None]:
    """The command that typer is given for a function of classes of options."""
    hints = get_type_hints(function, include_extras=True)
    taken = [_taken(parameter, hints[name]) for name, parameter in inspect.signature(function).parameters.items()]
    parameters = [parameter for one in taken for parameter in one.parameters]

    @functools.wraps(function)
    def command(**given: Any) -> None:
        function(**{one.name: one.value(given) for one in taken})

    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


@dataclass(frozen=True, kw_only=True)
class _Argument:
    """A parameter of the function: the parameters of the command that it is made of, and how."""

    name: str
    parameters: tuple[inspect.Parameter, ...]
    value: Callable[[Mapping[str, Any]], Any]


def _taken(parameter: inspect.Parameter, hint: Any) -> _Argument:
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return _of_class(parameter.name, hint)
    plain = parameter.replace(annotation=hint, kind=inspect.Parameter.KEYWORD_ONLY)
    return _Argument(name=parameter.name, parameters=(plain,), value=lambda given: given[parameter.name])


def _of_class(name: str, options_class: type[Any]) -> _Argument:
    by_typer = tuple(_by_typer(options_class))
    by_option = {_parameter_name(option): option for option in declared(options_class)}

    def value(given: Mapping[str, Any]) -> Any:
        written = {
            _flag(name): given[name] for name in by_option if given[name] != _written_default(by_option[name])
        }
        made = build(options_class, written)
        return dataclasses.replace(made, **{parameter.name: given[parameter.name] for parameter in by_typer})

    return _Argument(name=name, parameters=(*by_typer, *map(_by_option, by_option.values())), value=value)


def _by_typer(options_class: type[Any]) -> Iterator[inspect.Parameter]:
    hints = get_type_hints(options_class, include_extras=True)
    for field in dataclasses.fields(options_class):
        hint = hints[field.name]
        if get_origin(hint) is Annotated and isinstance(get_args(hint)[1], ParameterInfo):
            kind, info = get_args(hint)
            info = copy(info)
            info.rich_help_panel = info.rich_help_panel or _panel(options_class)
            yield _parameter(field.name, Annotated[kind, info], field.default)


def _by_option(option: DeclaredOption) -> inspect.Parameter:
    meaning = option.info.meaning
    help_text = f"{meaning[:1].upper()}{meaning[1:]}" + ("" if meaning.endswith(".") else ".")
    metavar = "DURATION" if option.info.unit == "s" else None
    info = typer.Option(help=help_text, rich_help_panel=_panel(option.within), metavar=metavar)
    return _parameter(_parameter_name(option), Annotated[_written(option), info], _written_default(option))


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def _panel(options_class: type[Any]) -> str | None:
    return getattr(options_class, "PANEL", None)


def _parameter_name(option: DeclaredOption) -> str:
    """Durations are written with their unit, so that their options need not name it."""
    return option.info.name.removesuffix("_s") if option.info.unit == "s" else option.info.name


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _written(option: DeclaredOption) -> Any:
    if option.info.unit == "s":
        return str | None if option.info.default is None else str
    return option.written


def _written_default(option: DeclaredOption) -> Any:
    default = option.info.default
    if option.read is not None:
        return None
    return duration_text(default) if option.info.unit == "s" and default is not None else default


def flags_given(options: Any) -> tuple[str, ...]:
    """The options that are set to something else than their defaults, as they are written on the command line."""
    found = declared(type(options))
    return tuple(
        _flag(_parameter_name(option))
        for option in found
        if functools.reduce(getattr, option.path, options) != option.info.default
    )
