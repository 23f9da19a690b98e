"""Commands that take the file of a pipeline: what stands after `--` on their line is for the file, not for them.

elastream run job.py --interval 30s -- --input incoming --limit 100
"""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperCommand

_MARK = "--"
_TOO_MUCH = ("No such option", "Got unexpected extra argument")
_KEY = "elastream.arguments_of_the_file"


class TakesArguments(TyperCommand):
    """With `-- ARGUMENTS...` at the end of its line."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        end = args.index(_MARK) if _MARK in args else len(args)
        ctx.meta[_KEY] = tuple(args[end + 1 :])
        try:
            return super().parse_args(ctx, args[:end])
        except Exception as error:  # which class it has depends on typer's version
            told = getattr(error, "message", "")
            if end == len(args) and told.startswith(_TOO_MUCH):
                error.message = f"{told}; what is for the pipeline file stands after {_MARK}"  # type: ignore[attr-defined]
            raise

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [*super().collect_usage_pieces(ctx), f"[{_MARK} ARGUMENTS...]"]


def arguments_of_file(ctx: typer.Context) -> tuple[str, ...]:
    """What the file finds as `sys.argv[1:]` while it is loaded."""
    found: tuple[str, ...] = ctx.meta.get(_KEY, ())
    return found
