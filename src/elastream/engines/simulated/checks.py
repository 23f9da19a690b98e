"""Checks that the parts of a model share; each raises an error that names the field and what was found."""

from __future__ import annotations

import math

from elastream.errors import InvalidInput


def require_positive(name: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise InvalidInput(f"{name} must be a finite number above 0, found {value}")


def require_not_negative(name: str, value: float) -> None:
    if not (math.isfinite(value) and value >= 0):
        raise InvalidInput(f"{name} must be a finite number of at least 0, found {value}")


def require_limit(name: str, value: float) -> None:
    """A limit may be infinite: there is then none."""
    if not value > 0:
        raise InvalidInput(f"{name} must be above 0, or infinite, found {value}")


def require_share(name: str, value: float) -> None:
    if not 0 < value <= 1:
        raise InvalidInput(f"{name} must be above 0 and at most 1, found {value}")
