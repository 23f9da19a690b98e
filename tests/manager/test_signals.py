"""Ctrl-C and SIGTERM while something starts and while it runs."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from elastream.manager.loop import WallClock
from elastream.manager.signals import interruptible, stopping_on_signals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_is_stopped_and_not_interrupted(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    clock = WallClock()
    with stopping_on_signals(clock):
        os.kill(os.getpid(), number)
        assert clock.stopped.wait(10)
    assert signal.getsignal(number) is before


def test_what_starts_can_be_interrupted_and_may_not_keep_the_signal() -> None:
    def start() -> None:
        with interruptible():
            os.kill(os.getpid(), signal.SIGINT)
            threading.Event().wait(10)

    clock = WallClock()
    with stopping_on_signals(clock):
        with pytest.raises(KeyboardInterrupt):
            start()
        assert not clock.stopped.is_set()
        with interruptible():
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a library may, when it starts
        os.kill(os.getpid(), signal.SIGINT)
        assert clock.stopped.wait(10)


def test_other_threads_cannot_see_to_signals_and_need_not() -> None:
    done = threading.Event()

    def start() -> None:
        with interruptible():
            done.set()

    threading.Thread(target=start).start()
    assert done.wait(10)
