"""What can be a count, a duration or a rate."""

from __future__ import annotations

from elastream.errors import InvalidInput

MOST_AMOUNT = 1e18
"""Of anything that is counted or measured; beyond it a number is a mistake."""


def check_amount(what: str, value: float) -> None:
    if not value >= 0:  # nor is NaN
        raise InvalidInput(f"{what} must be a number of at least 0, found {value}")
    if value > MOST_AMOUNT:
        raise InvalidInput(f"{what} must be at most {MOST_AMOUNT:g}, found {value}")
