"""Frames and messages: what is written is read back however it is cut, and nothing else gets through."""

from __future__ import annotations

import gc
import random
import struct
import tracemalloc
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.wire_fuzz import fuzz_decoder
from elastream.agents.messages import (
    VERSION,
    Acknowledged,
    Claim,
    Hello,
    Readings,
    Refused,
    Sample,
    Subscribed,
    Welcome,
    WrongVersionError,
    agent_message,
    frame,
    master_message,
)
from elastream.agents.wire import MOST_BYTES, Decoder, WireError, encode
from elastream.policies.rules.metrics import METRICS

names = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=20)
metrics = st.lists(names, max_size=4).map(tuple)
amounts = st.floats(0, 1e18)
claims = st.builds(Claim, names, st.none() | st.integers(0, 2**31 - 1), st.booleans())
samples = st.builds(
    Sample,
    st.integers(0, 2**53 - 1),
    st.integers(0, 2**53 - 1),
    st.lists(st.lists(st.none() | amounts, max_size=3).map(tuple), min_size=1, max_size=3).map(tuple),
)
from_agent = st.builds(
    Hello,
    version=st.just(VERSION),
    token=st.text(max_size=30),
    agent=names,
    run=names,
    claims=st.lists(claims, min_size=1, max_size=3).map(tuple),
    offers=metrics,
    at_s=st.floats(allow_nan=False, allow_infinity=False),
) | st.builds(
    Readings,
    at_s=st.floats(allow_nan=False, allow_infinity=False),
    names=metrics,
    samples=st.lists(samples, min_size=1, max_size=3).map(tuple),
    thinned=st.integers(0, 2**53 - 1),
)
numbers = st.integers(0, 2**53 - 1)
per_operator = st.lists(st.lists(st.integers(0, 63), max_size=4).map(tuple), min_size=1, max_size=3).map(tuple)
spans = st.floats(0, 86_400)
from_master = (
    st.builds(
        Welcome,
        version=st.integers(0, 9),
        instances=st.lists(st.integers(0, 99), min_size=1, max_size=3).map(tuple),
        interval_s=st.floats(0.001, 86_400),
        names=metrics,
        wanted=per_operator,
        next_in_s=spans,
    )
    | st.builds(Subscribed, names=metrics, wanted=per_operator)
    | st.builds(
        Acknowledged, received=st.lists(st.tuples(numbers, numbers), max_size=3).map(tuple), next_in_s=spans
    )
    | st.builds(Refused, why=st.text(max_size=200))
)


def in_pieces(data: bytes, cuts: list[int]) -> Iterator[bytes]:
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    yield from (data[begin:end] for begin, end in pairwise(places))


def decoded(*pieces: bytes) -> list[Any]:
    decoder = Decoder()
    return [value for piece in pieces for value in decoder.feed(piece)]


@given(st.lists(from_agent, max_size=4), st.lists(st.integers(0, 10_000), max_size=10))
def test_what_agents_send_is_read_back_however_it_is_cut(messages: list[Any], cuts: list[int]) -> None:
    data = b"".join(map(frame, messages))
    assert [agent_message(value) for value in decoded(*in_pieces(data, cuts))] == messages


@given(from_master)
def test_so_is_what_the_master_sends(message: Any) -> None:
    (value,) = decoded(frame(message))
    found = master_message(value)
    assert (type(found), found) == (type(message), message)


def test_a_subscription_saves_the_bytes_of_metrics_that_nobody_looks_at() -> None:
    def size(names: Iterable[str]) -> int:
        found = tuple(names)
        return len(frame(Readings(at_s=1e9, names=found, samples=(Sample(1, 0, ((50.5,) * len(found),)),))))

    used = ["queue_length", "cpu_utilization"]
    unused = 1 - len(used) / len(METRICS)
    of_metrics = 1 - (size(used) - size([])) / (size(METRICS) - size([]))
    of_frames = 1 - size(used) / size(METRICS)
    assert of_metrics == pytest.approx(unused, abs=0.02)
    assert of_frames > 0.9 * unused


@pytest.mark.parametrize("length", [MOST_BYTES + 1, 2**31, 2**32 - 1])
def test_a_frame_too_long_is_refused_by_its_length_alone(length: int) -> None:
    decoder = Decoder()
    with pytest.raises(WireError, match=f"a frame says it has {length:,} bytes, and 65,536 are allowed"):
        list(decoder.feed(struct.pack(">I", length)))
    assert decoder.kept_bytes == 0


def test_what_speaks_another_protocol_is_refused() -> None:
    with pytest.raises(WireError, match="a frame says it has"):
        decoded(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")


def test_a_broken_connection_stays_broken() -> None:
    decoder = Decoder()
    for data in (struct.pack(">I", 2**31), frame(Refused(why="a good frame"))):
        with pytest.raises(WireError, match="a frame says it has"):
            list(decoder.feed(data))


def test_frames_before_a_broken_one_count() -> None:
    values = Decoder().feed(encode((6, "first")) + b"\xff\xff\xff\xff")
    assert next(values) == (6, "first")
    with pytest.raises(WireError):
        next(values)


@pytest.mark.parametrize(
    "payload",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"\xc1", id="no such type"),
        pytest.param(msgpack.packb(1) + b"\x01", id="more after the value"),
        pytest.param(b"\xdd\xff\xff\xff\xff", id="a list of four thousand million"),
        pytest.param(b"\xdf\xff\xff\xff\xff", id="a map of four thousand million"),
        pytest.param(b"\xc6\xff\xff\xff\xff", id="four gigabytes"),
        pytest.param(b"\xdb\xff\xff\xff\xff", id="a text of four gigabytes"),
        pytest.param(b"\x91" * 60_000, id="nested deeply"),
        pytest.param(msgpack.packb([0] * 257), id="a list too long"),
        pytest.param(msgpack.packb("x" * 1025), id="a text too long"),
        pytest.param(msgpack.packb(msgpack.ExtType(4, b"code")), id="an extension"),
        pytest.param(msgpack.packb({(1, 2): 3}), id="a key that is no text"),
        pytest.param(b"\xa2\xff\xfe", id="no UTF-8"),
    ],
)
def test_what_is_not_msgpack_within_its_limits_is_refused(payload: bytes) -> None:
    with pytest.raises(WireError, match="not msgpack, or not within its limits"):
        decoded(struct.pack(">I", len(payload)) + payload)


def test_lists_that_say_they_are_long_get_no_memory() -> None:
    """A thousand lists in each other that each announce as many items as are allowed: 3 KB on the wire."""
    payload = b"\xdc\x01\x00" * 1000
    tracemalloc.start()
    try:
        with pytest.raises(WireError):
            decoded(struct.pack(">I", len(payload)) + payload)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 5_000_000


HELLO = (1, VERSION, "secret", "a", "r", (("map", None, True),), (), 0.0)
READINGS = (2, 0.0, ("latency",), ((1, 0, ((1.0,),)),))


def changed(message: tuple[Any, ...], place: int, value: Any) -> tuple[Any, ...]:
    return (*message[:place], value, *message[place + 1 :])


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "a message is a list that begins with its kind, 1 to 6, found None"),
        ((), "begins with its kind"),
        ((True,), "begins with its kind"),
        ((7, 1), "begins with its kind"),
        ((5, ((1, 1),), 0.5), "an agent does not send Acknowledged"),
        (HELLO[:-1], "Hello: at_s: Field required"),
        (changed(HELLO, 3, ""), "Hello: agent: String should have at least 1 character"),
        (changed(HELLO, 3, "a\x1b[2J"), "Hello: agent: Value error, a name can be printed in a line"),
        (changed(HELLO, 5, ()), "Hello: claims: Tuple should have at least 1 item"),
        (
            changed(HELLO, 5, (("map", -1, True),)),
            "Hello: claims[0][1]: Input should be greater than or equal to 0",
        ),
        (changed(HELLO, 7, float("inf")), "Hello: at_s: Input should be a finite number"),
        (changed(READINGS, 3, ()), "Readings: samples: Tuple should have at least 1 item"),
        (changed(READINGS, 3, ((1, 0, ((float("nan"),),)),)), "Readings: samples[0][2][0][0]"),
        (changed(READINGS, 3, ((1, 0, ((-1.0,),)),)), "Readings: samples[0][2][0][0]"),
        (changed(READINGS, 3, ((1, 0, (("1",),)),)), "Readings: samples[0][2][0][0]"),
    ],
)
def test_what_is_no_message_is_refused_by_its_place(value: Any, expected: str) -> None:
    with pytest.raises(WireError) as error:
        agent_message(value)
    assert expected in str(error.value)
    assert "secret" not in str(error.value), "a token does not get into a log"


def test_a_hello_of_another_version_is_told_apart_whatever_follows() -> None:
    with pytest.raises(WrongVersionError, match="the master speaks version 2 of the protocol, the agent 3"):
        agent_message((1, 3, {"all": "different"}))


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=4))
def test_whatever_comes_is_a_message_or_refused(data: bytes, cuts: list[int]) -> None:
    decoder = Decoder()
    try:
        for piece in in_pieces(data, cuts):
            for value in decoder.feed(piece):
                agent_message(value)
    except WireError:
        pass
    assert decoder.kept_bytes <= MOST_BYTES + 4


def test_random_frames_neither_crash_the_decoder_nor_grow_memory() -> None:
    """The benchmark `wire-fuzz` does it a million times."""
    fuzz_decoder(frames=2_000, rng=random.Random(1))  # what is made once is made now
    tracemalloc.start()
    try:
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        outcomes = fuzz_decoder(frames=10_000, rng=random.Random(2))
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sum(outcomes.values()) == 10_000
    assert len(outcomes) == 4, "each kind of ending is reached"
    assert after - before < 400_000, "less than a frame each"
