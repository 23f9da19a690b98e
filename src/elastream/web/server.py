"""The server in a thread of its own, beside the manager; it ends with the process."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import threading
from types import TracebackType
from typing import Self

import uvicorn
from fastapi import FastAPI

from elastream.accepting import Acceptor, share_of_descriptors
from elastream.errors import ElastreamError
from elastream.showing import views
from elastream.web.actions import Acting
from elastream.web.address import Address
from elastream.web.app import build_app
from elastream.web.connections import MOST_CONNECTIONS, PageConnection, PageConnections
from elastream.web.feed import Feed
from elastream.web.guard import own_hosts
from elastream.web.tokens import Tokens

_TRIED = 20  # ports, from the one that was asked for
_START_WITHIN_S = 30.0
_END_WITHIN_S = 5.0


class Server:
    """`with Server(...) as server:` serves the feed, at `server.url`, until the block ends."""

    def __init__(
        self,
        feed: Feed,
        configuration: views.ConfigurationView,
        address: Address,
        *,
        acting: Acting | None = None,
        tokens: Tokens | None = None,
    ) -> None:
        self._feed = feed
        self._socket = _listening(address)
        self.port: int = self._socket.getsockname()[1]
        self.moved = address.port not in (0, self.port)
        """Whether the port that was asked for is in use by someone else."""
        scheme = "http" if address.tls is None else "https"
        self.url = f"{scheme}://{f'[{address.host}]' if ':' in address.host else address.host}:{self.port}/"
        hosts = own_hosts(address.host, self.port, address.names, scheme)
        self.app: FastAPI = build_app(feed, configuration, hosts=hosts, acting=acting, tokens=tokens)
        self._tls = address.tls
        self._server = uvicorn.Server(
            uvicorn.Config(
                self.app,
                http=PageConnection,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=1,
            )
        )
        self.connections = PageConnections(self._server)
        self._up = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="elastream-web", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._up.wait(_START_WITHIN_S):
            raise ElastreamError(f"{self.url}: the server did not come up within {_START_WITHIN_S:g} s")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._feed.close()  # first: the server waits for its streams to end
        self._server.should_exit = True
        self._thread.join(_END_WITHIN_S)

    def _serve(self) -> None:
        asyncio.run(self._served())

    async def _served(self) -> None:
        connections = self.connections
        most = share_of_descriptors(MOST_CONNECTIONS)
        self._feed.serve_in(asyncio.get_running_loop(), connections=most)
        acceptor = Acceptor(self._socket, connections, most=most, tls=self._tls, make_room=connections.make_room)
        beside = [asyncio.create_task(acceptor.run()), asyncio.create_task(connections.end_late())]
        self._up.set()
        try:
            await self._server.serve(sockets=[])  # the acceptor accepts in its place
        finally:
            for task in beside:
                task.cancel()
            self._socket.close()


def _listening(address: Address) -> socket.socket:
    """On the port that was asked for, or the next that is free."""
    last = address.port if address.port == 0 else min(65_535, address.port + _TRIED - 1)
    for port in range(address.port, last + 1):
        with contextlib.suppress(_InUse):
            return _bound(address.host, port)
    raise ElastreamError(f"{address.host}: the ports from {address.port} to {last} are all in use")


class _InUse(Exception):  # noqa: N818
    pass


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((host, port))
        found.listen(128)  # from here on the port is ours, also where two bound it at once
    except OSError as error:
        found.close()
        if error.errno == errno.EADDRINUSE:
            raise _InUse from None
        raise ElastreamError(f"{host}:{port}: cannot be listened on: {error.strerror or error}") from None
    return found
