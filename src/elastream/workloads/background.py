"""The load generator in the background of a test or a benchmark: a thread, where a process is not needed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from elastream.engines.spark.channels.kinds import open_channel
from elastream.workloads.generator import generate
from elastream.workloads.load import Load


@contextmanager
def writing(channel: Path, load: Load, *, words: int = 5, tick_s: float = 0.25) -> Iterator[None]:
    """Write records to a channel at the rate of a load, until the end of the block."""
    stop = threading.Event()
    thread = threading.Thread(
        target=generate,
        args=(open_channel(channel), load),
        kwargs={"words": words, "tick_s": tick_s, "stopped": stop.is_set},
        daemon=True,
    )
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(timeout=30)
