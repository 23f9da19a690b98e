"""Frames: four bytes that say how long the rest is, then that much msgpack. Pure: bytes in, values out.

Whatever comes from a socket is taken to be hostile. A frame beyond the limit is refused by its first four bytes,
before any of it is kept, and within a frame the lengths that msgpack announces are bounded too: a list that says
it has four thousand million items makes its reader set memory aside for them before it looks for the first.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from elastream.errors import ElastreamError

MOST_BYTES = 64 * 1024
"""Of one frame, without the four bytes before it."""
MOST_ITEMS = 256
"""Of one list, or of one map."""
MOST_TEXT_BYTES = 1024

_LENGTH = struct.Struct(">I")


class WireError(ElastreamError):
    """What came is not a frame; nothing that comes after it on the same connection can be told apart any more."""


def encode(value: Any) -> bytes:
    import msgpack  # an extra

    payload: bytes = msgpack.packb(value)
    if len(payload) > MOST_BYTES:
        raise WireError(f"a frame of {len(payload):,} bytes is more than the {MOST_BYTES:,} that are allowed")
    return _LENGTH.pack(len(payload)) + payload


class Decoder:
    """Of one connection. It never holds more than one unfinished frame and what came with it."""

    def __init__(self) -> None:
        self._kept = bytearray()
        self._broken: str | None = None

    def feed(self, data: bytes) -> Iterator[Any]:
        """The values of all frames that are whole now, one after the other; the rest is kept for the next call.

        After a WireError there is no way back: every further call raises it again.
        """
        self._kept += data
        begin = 0
        try:
            while (end := self._end(begin)) is not None:
                payload = bytes(memoryview(self._kept)[begin + _LENGTH.size : end])
                begin = end
                yield self._value(payload)
        finally:
            del self._kept[:begin]

    @property
    def kept_bytes(self) -> int:
        return len(self._kept)

    def _end(self, begin: int) -> int | None:
        """Where the frame ends that begins there; None where it is not whole yet."""
        if self._broken is not None:
            raise WireError(self._broken)
        if len(self._kept) < begin + _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._kept, begin)
        if length > MOST_BYTES:
            raise self._breaks(f"a frame says it has {length:,} bytes, and {MOST_BYTES:,} are allowed")
        end: int = begin + _LENGTH.size + length
        return end if len(self._kept) >= end else None

    def _value(self, payload: bytes) -> Any:
        import msgpack

        try:
            return msgpack.unpackb(
                payload,
                use_list=False,
                max_array_len=MOST_ITEMS,
                max_map_len=MOST_ITEMS,
                max_str_len=MOST_TEXT_BYTES,
                max_bin_len=0,
                max_ext_len=0,
            )
        except (ValueError, TypeError, msgpack.UnpackException) as error:
            raise self._breaks(f"a frame is not msgpack, or not within its limits: {error}") from None

    def _breaks(self, why: str) -> WireError:
        self._broken = why
        self._kept.clear()
        return WireError(why)
