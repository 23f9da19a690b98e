"""The reference of the command: every subcommand with its arguments, options, defaults and help, from the app."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

import typer

from docs.hooks.markdown_text import code, sentence, table
from elastream.cli import app
from elastream.commands.pipeline_file import TakesArguments

_VALUES = {str: "TEXT", int: "N", float: "NUMBER", Path: "PATH"}


def commands_text() -> str:
    root: Any = typer.main.get_command(app)
    found = list(_commands("elastream", root))
    overview = table(
        ["command", "what it does"],
        ([f"[`{name}`](#{name.replace(' ', '-')})", _summary(command)] for name, command in found),
    )
    return "\n\n".join([overview, *(_command(name, command) for name, command in found)])


def _commands(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    """Those that do something: of a group also itself, where it does something when no subcommand is named."""
    if command.hidden:
        return
    inner = getattr(command, "commands", None)
    if inner is None:
        yield name, command
        return
    if getattr(command, "invoke_without_command", False):
        yield name, command
    for word, subcommand in inner.items():
        yield from _commands(f"{name} {word}", subcommand)


def _summary(command: Any) -> str:
    return sentence((command.help or "").split("\n\n", 1)[0])


def _command(name: str, command: Any) -> str:
    arguments = [p for p in command.params if p.param_type_name == "argument" and not p.hidden]
    options = [p for p in command.params if p.param_type_name == "option" and not p.hidden]
    for_file = ["[-- ARGUMENTS...]"] if isinstance(command, TakesArguments) else []
    usage = " ".join([name, *map(_usage, arguments), *(["[OPTIONS]"] if options else []), *for_file])
    parts = [f"## {name}", f"```\n{usage}\n```", command.help or ""]
    if arguments:
        rows = ([code(_argument(p)), sentence(p.help or ""), _default(p)] for p in arguments)
        parts.append(table(["argument", "meaning", "default"], rows))
    if options:
        rows = ([_names(p), _value(p), sentence(p.help or ""), _default(p)] for p in options)
        parts.append(table(["option", "value", "meaning", "default"], rows))
    return "\n\n".join(part for part in parts if part)


def _argument(parameter: Any) -> str:
    return str(parameter.metavar or parameter.name.upper())


def _usage(parameter: Any) -> str:
    word = _argument(parameter) + ("..." if parameter.nargs == -1 else "")
    return word if parameter.required else f"[{word}]"


def _names(parameter: Any) -> str:
    return ", ".join(map(code, (*parameter.opts, *parameter.secondary_opts)))


def _value(parameter: Any) -> str:
    if parameter.is_flag:
        return ""
    word = parameter.metavar or _word(parameter)
    return code(word) + (", repeatable" if parameter.multiple else "")


def _word(parameter: Any) -> str:
    kind = parameter.type_descriptor.annotation
    kind = getattr(kind, "__args__", (kind,))[0]  # of a list, what is in it
    if isinstance(kind, type) and issubclass(kind, Enum):
        return "|".join(str(choice.value) for choice in kind)
    return _VALUES.get(kind, "VALUE")


def _default(parameter: Any) -> str:
    default = parameter.default
    if parameter.required:
        return "needed"
    if default is None or default == [] or default == ():
        return ""
    if isinstance(default, bool):
        return _flag_default(parameter, default)
    return code(str(default.value if isinstance(default, Enum) else default))


def _flag_default(parameter: Any, default: bool) -> str:
    if not parameter.secondary_opts:
        return "on" if default else ""
    return code((parameter.opts if default else parameter.secondary_opts)[0])
