"""Waiting for what is to happen, and never for a time: a busy machine may take ten times as long."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE_S = 240.0
_LOOK_EVERY_S = 0.01


def wait_until(
    true: Callable[[], object], what: str | Callable[[], str] = "it", *, patience_s: float = PATIENCE_S
) -> None:
    """Until it is true; `what` says what did not come."""
    deadline_s = time.monotonic() + patience_s
    while not true():
        assert time.monotonic() < deadline_s, f"not in time: {what() if callable(what) else what}"
        time.sleep(_LOOK_EVERY_S)
