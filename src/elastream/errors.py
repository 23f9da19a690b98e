"""Errors that a user can act on: the command prints their message and exits with status 2, no traceback."""

from __future__ import annotations

import difflib
import reprlib
from collections.abc import Iterable

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxlong = _SHORT.maxother = 60
_SHORT.maxlevel = 2
_MOST_MESSAGE = 4_000


class ElastreamError(Exception):
    """Anything that elastream itself refuses or fails at."""


class InvalidInput(ElastreamError):  # noqa: N818 - reads better where it is raised
    """What was given cannot be used; the message names the place, what was expected and what was found."""

    def __init__(self, message: str) -> None:
        """Of a long one the beginning and the end are told: what was found may be of any length."""
        whole = len(message) <= _MOST_MESSAGE
        super().__init__(message if whole else f"{message[: _MOST_MESSAGE - 300]} ... {message[-200:]}")

    def at(self, place: str) -> InvalidInput:
        """The same error, with the file or field that it was found in put before it."""
        return InvalidInput(f"{place}: {self}")


def shown(value: object) -> str:
    """What was found, for an error message; whatever its size and depth, it stays short."""
    return _SHORT.repr(value)


def nearest(word: str, known: Iterable[str]) -> str:
    """A hint for a misspelt word: `` (did you mean 'x'?)``, the list of known words, or nothing."""
    options = sorted(known)
    match = difflib.get_close_matches(word, options, n=1, cutoff=0.6)
    if match:
        return f" (did you mean {match[0]!r}?)"
    if 0 < len(options) <= 30:
        return f" (known: {', '.join(options)})"
    return ""
