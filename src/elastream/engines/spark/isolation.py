"""Which records of a batch make it fail: bisection, where all that can be asked is whether some of them do.

A part that does not fail is well, whatever it has; one that fails is halved, down to single records. Where the
first half of such a part is well, the second is taken to fail without being asked. That takes at most 2·k·log₂ n
questions for k culprits among n records, and half of them for one. Pure: the question is an argument.
"""

from __future__ import annotations

from collections.abc import Callable

from elastream.errors import ElastreamError

ErrorOf = Callable[[int, int], str | None]
"""Why the records from the first up to but without the last fail; None where they do not."""


class NotIsolatedError(ElastreamError):
    """It is no matter of single records, or of too many."""


def isolate(records: int, error_of: ErrorOf, *, most: int) -> dict[int, str]:
    """By their place among the records, with the error of each; for a batch that fails, of one record or more."""
    if (error := error_of(0, 0)) is not None:
        raise NotIsolatedError(f"it fails without any record, too: {error}")
    found: dict[int, str] = {}
    failing: list[tuple[int, int, str | None]] = [
        (0, records, None)
    ]  # with their errors, where those were asked for
    while failing:
        first, last, error = failing.pop()
        if last - first == 1:
            if (error := error or error_of(first, last)) is not None:
                found[first] = error
            if len(found) > most:
                raise NotIsolatedError(f"more than {most} records of the batch make it fail")
            continue
        middle = (first + last) // 2
        error = error_of(first, middle)
        second = error_of(middle, last) if error is not None else None
        if error is None or second is not None:
            failing.append((middle, last, second))
        if error is not None:
            failing.append((first, middle, error))
    if not found:
        raise NotIsolatedError("no single record makes it fail")
    return found
