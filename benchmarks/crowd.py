"""Connections that mean no good, in one process: python -m benchmarks.crowd HOST PORT COUNT WITHIN_S.

They come one after the other within that time, and each stays until it is closed: some idle, some with a request
that comes byte by byte, without an end, or as noise, some that ask and never read. It says when all have come.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import resource
import sys
import time
from functools import partial

_BETWEEN_BYTES_S = 0.5


class _One(asyncio.Protocol):
    def __init__(self, number: int, host: str) -> None:
        head = f"GET /api/v1/run HTTP/1.1\r\nHost: {host}\r\n".encode()
        body = f"POST /api/v1/rules/check HTTP/1.1\r\nHost: {host}\r\nContent-Length: 900000\r\n\r\n".encode()
        ask = f"GET /api/v1/stream HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()
        noise, shake = random.Random(number).randbytes(2_000) + b"\r\n\r\n", b"\x16\x03\x01\x02\x00"
        kinds = ((b"", b""), (b"", head), (body + b"x" * 65_000, b""), (ask, b""), (noise, b""), (shake, noise))
        self._at_once, self._slowly = kinds[number % len(kinds)]
        self._reads = self._at_once != ask

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if not self._reads:
            transport.pause_reading()
        transport.write(self._at_once)
        if self._slowly:
            self._next_byte(0)

    def _next_byte(self, at: int) -> None:
        if not self._transport.is_closing() and at < len(self._slowly):
            self._transport.write(self._slowly[at : at + 1])
            asyncio.get_running_loop().call_later(_BETWEEN_BYTES_S, self._next_byte, at + 1)


async def main(host: str, port: int, count: int, within_s: float) -> None:
    loop, began_s = asyncio.get_running_loop(), time.monotonic()
    held = []  # as long as the other side lets it
    for number in range(count):
        await asyncio.sleep(max(0.0, began_s + number * within_s / count - time.monotonic()))
        with contextlib.suppress(OSError):
            held.append(await loop.create_connection(partial(_One, number, f"{host}:{port}"), host, port))
    print(f"{len(held)} came", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])))
