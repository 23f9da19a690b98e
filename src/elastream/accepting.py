"""Connections that come to a port, at most so many at a time, those among them that still shake hands by TLS.

asyncio's own servers accept all that comes: a flood of idle connections takes every file descriptor of the
process, and each that cannot be accepted is a traceback. Here whoever comes too many is closed at once, or takes
the place of one that has been idle for longer; that descriptors are used up is told once a minute.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import resource
import socket
import ssl
import time
from collections.abc import Callable
from pathlib import Path

from elastream.errors import InvalidInput

_log = logging.getLogger(__name__)

_NO_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_AGAIN_AFTER_S = 0.5
_TOLD_AGAIN_S = 60.0
_MOST_HANDSHAKES = 100
_HANDSHAKE_IF_CROWDED_S = 1.0

Release = Callable[[], None]


def _no_room() -> bool:
    return False


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def server_tls(certificate: Path | None, key: Path | None) -> ssl.SSLContext | None:
    if certificate is None and key is None:
        return None
    if certificate is None:
        raise InvalidInput("--tls-key needs the certificate that it belongs to: --tls-certificate")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise InvalidInput(f"{certificate}: not a certificate with its key: {tls_reason(error)}") from None
    return context


def tls_reason(error: OSError) -> str:
    return getattr(error, "reason", None) or error.strerror or str(error)


def share_of_descriptors(most: int, share: float = 0.25) -> int:
    """Connections that a port may hold without taking the files that the rest of the process needs."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return most if soft == resource.RLIM_INFINITY else max(1, min(most, int(soft * share)))


class Acceptor:
    """`await acceptor.run()` accepts until it is cancelled. A protocol calls what it is given when it is lost."""

    def __init__(
        self,
        listening: socket.socket,
        protocol: Callable[[Release], asyncio.Protocol],
        *,
        most: int,
        tls: ssl.SSLContext | None = None,
        handshake_within_s: float = 5.0,
        make_room: Callable[[], bool] = _no_room,
    ) -> None:
        listening.setblocking(False)
        self._listening = listening
        self._protocol = protocol
        self._most = most
        self._tls = tls
        self._handshake_within_s = handshake_within_s
        self._make_room = make_room
        self._connecting: dict[asyncio.Task[None], float] = {}  # with when each began, oldest first
        self._told_s = -_TOLD_AGAIN_S
        self.open = 0
        """Connections, and handshakes that may become some."""
        self.refused = 0

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._let_hands_be_shaken()
            try:
                accepted, _ = await loop.sock_accept(self._listening)
            except OSError as error:
                if error.errno == errno.EBADF:  # it was closed: nobody can come any more
                    return
                if error.errno in _NO_RESOURCES:
                    self._tell(f"no connection can be accepted: {error.strerror}")
                    self._make_room()
                    await asyncio.sleep(_AGAIN_AFTER_S)
            else:
                self._take(loop, accepted)
            await asyncio.sleep(0)  # a connection that waits already is accepted without giving others their turn

    def _take(self, loop: asyncio.AbstractEventLoop, accepted: socket.socket) -> None:
        if self.open >= self._most and not self._make_room():
            accepted.close()
            self.refused += 1
            self._tell(f"{self._most} connections are open: {self.refused:,} were closed as they came")
            return
        self.open += 1
        task = loop.create_task(self._connect(loop, accepted))
        self._connecting[task] = time.monotonic()
        task.add_done_callback(self._connecting.pop)

    async def _let_hands_be_shaken(self) -> None:
        """Wait while many are at it: each holds a quarter of a megabyte. Who takes long then makes room."""
        while self._tls is not None and len(self._connecting) >= _MOST_HANDSHAKES:
            oldest, began_s = next(iter(self._connecting.items()))
            left_s = max(0.0, began_s + _HANDSHAKE_IF_CROWDED_S - time.monotonic())
            done, _ = await asyncio.wait(self._connecting, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                oldest.cancel()
                await asyncio.wait([oldest])

    async def _connect(self, loop: asyncio.AbstractEventLoop, accepted: socket.socket) -> None:
        release = self._releasing()
        within_s = None if self._tls is None else self._handshake_within_s
        try:
            await loop.connect_accepted_socket(
                lambda: self._protocol(release), accepted, ssl=self._tls, ssl_handshake_timeout=within_s
            )
        except (OSError, asyncio.CancelledError):
            accepted.close()
            release()

    def _releasing(self) -> Release:
        held = True

        def release() -> None:
            nonlocal held
            self.open -= held
            held = False

        return release

    def _tell(self, what: str) -> None:
        now_s = time.monotonic()
        if now_s - self._told_s >= _TOLD_AGAIN_S:
            self._told_s = now_s
            host, port, *_ = self._listening.getsockname()
            _log.warning("%s:%s: %s", host, port, what)
