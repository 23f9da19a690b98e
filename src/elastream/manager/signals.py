"""Ctrl-C and SIGTERM, for whoever runs a manager."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

from elastream.manager.loop import WallClock


@contextmanager
def stopping_on_signals(clock: WallClock) -> Iterator[None]:
    """They end the run after what is under way, not in the middle of it."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        signal.signal(number, lambda *_: clock.stop())
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
