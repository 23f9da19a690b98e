"""A million random frames for the decoder of the monitoring master: none crashes it, and its memory does not grow.

Frames of five kinds, from noise to messages with a few bytes changed, as noise alone is mostly refused by its
first four bytes. They come in pieces, over a connection that is replaced when it broke.
"""

from __future__ import annotations

import random
import struct
import time
from collections import Counter
from typing import Any

import msgpack
import psutil

from benchmarks.measure import Measure, Report
from elastream.agents.messages import VERSION, Claim, Hello, Readings, Sample, agent_message, frame
from elastream.agents.wire import MOST_BYTES, Decoder, WireError

MOST_GROWTH_BYTES = 10_000_000

GOOD = (
    frame(
        Hello(
            version=VERSION,
            token="token",
            agent="agent",
            run="run",
            claims=(Claim("map"), Claim("counts", 3)),
            offers=("queue_length", "latency"),
            at_s=1e9,
        )
    ),
    frame(
        Readings(at_s=1e9, names=("latency", "queue_length"), samples=(Sample(7, 0, ((None, 12.0), (0.5, None))),))
    ),
)


def run(*, frames: int = 1_000_000, seed: int = 1) -> Report:
    fuzz_decoder(frames=frames // 100, rng=random.Random(seed))  # what is made once is made now
    process = psutil.Process()
    before, began_s = process.memory_info().rss, time.monotonic()
    outcomes = fuzz_decoder(frames=frames, rng=random.Random(seed + 1))
    growth = process.memory_info().rss - before
    shown = ", ".join(f"{name}: {count:,}" for name, count in sorted(outcomes.items()))
    return Report(
        measures=(
            Measure(what="frames", value=sum(outcomes.values()), unit="", at_least=frames, at_most=frames),
            Measure(what="growth of memory", value=growth / 1e6, unit="MB", at_most=MOST_GROWTH_BYTES / 1e6),
            Measure(what="time", value=time.monotonic() - began_s, unit="s"),
        ),
        notes=(shown,),
    )


def fuzz_decoder(*, frames: int, rng: random.Random) -> Counter[str]:
    """How many frames led to what. Anything but a message or a WireError goes through, and is a crash."""
    outcomes: Counter[str] = Counter()
    decoder = Decoder()
    for _ in range(frames):
        outcome = _fed(decoder, _frame(rng), rng)
        outcomes[outcome] += 1
        assert decoder.kept_bytes <= MOST_BYTES + 4, "no more is kept than one frame"
        if outcome != "messages":  # what is unfinished would swallow the frames after it
            decoder = Decoder()
    return outcomes


def _fed(decoder: Decoder, data: bytes, rng: random.Random) -> str:
    cut = rng.randrange(len(data) + 1)
    try:
        values = [value for piece in (data[:cut], data[cut:]) for value in decoder.feed(piece)]
    except WireError:
        return "refused as a frame"
    try:
        for value in values:
            agent_message(value)
    except WireError:
        return "refused as a message"
    return "messages" if decoder.kept_bytes == 0 else "unfinished"


def _frame(rng: random.Random) -> bytes:
    match rng.randrange(5):
        case 0:
            return rng.randbytes(rng.randrange(1, 200))
        case 1:
            payload = rng.randbytes(rng.randrange(100))
        case 2:
            payload = msgpack.packb(_value(rng, depth=4))
        case 3:
            changed = bytearray(rng.choice(GOOD))
            for _ in range(rng.randrange(1, 4)):
                changed[rng.randrange(len(changed))] = rng.randrange(256)
            return bytes(changed)
        case _:
            return rng.choice(GOOD)
    return struct.pack(">I", len(payload)) + payload


def _value(rng: random.Random, depth: int) -> Any:
    match rng.randrange(8 if depth else 6):
        case 0:
            return None
        case 1:
            return rng.choice((True, False))
        case 2:
            return rng.randrange(-(2**40), 2**40)
        case 3:
            return rng.choice((0.5, float("nan"), float("inf"), -1e300))
        case 4:
            return rng.randbytes(rng.randrange(9)).hex()
        case 5:
            return rng.randbytes(rng.randrange(9))
        case 6:
            return [rng.randrange(1, 7), *(_value(rng, depth - 1) for _ in range(rng.randrange(6)))]
        case _:
            return {rng.randbytes(2).hex(): _value(rng, depth - 1) for _ in range(rng.randrange(4))}
