"""So many viewers of a run in one process, which read and forget: python -m benchmarks.viewers HOST PORT COUNT."""

from __future__ import annotations

import selectors
import socket
import sys


def main(host: str, port: int, count: int) -> None:
    """Says when all of them have been answered, and reads on until it is ended."""
    request = f"GET /api/v1/stream HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode()
    selector = selectors.DefaultSelector()
    waiting = set()
    for _ in range(count):
        found = socket.create_connection((host, port), timeout=60)
        found.sendall(request)
        selector.register(found, selectors.EVENT_READ)
        waiting.add(found)
    told = False
    while True:
        for key, _ in selector.select():
            assert isinstance(key.fileobj, socket.socket)
            if not key.fileobj.recv(1 << 20):
                raise SystemExit("the server has ended a stream")
            waiting.discard(key.fileobj)
        if not waiting and not told:
            print("all look", flush=True)
            told = True


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
