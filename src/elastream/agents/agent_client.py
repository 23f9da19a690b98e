"""The agent on a socket: it connects, reads when the master wants to know, sends, and comes back when it has to.

One task reads, whether or not there is a connection; the other keeps one up. All judgement is in `agent.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from elastream.agents.agent import Agent
from elastream.agents.master_server import Endpoint
from elastream.agents.messages import Refused, frame, master_message
from elastream.agents.wire import Decoder
from elastream.errors import ElastreamError

_log = logging.getLogger(__name__)

CONNECT_WITHIN_S = 10.0
_PATIENCE = 3.0  # intervals
_LEAST_PATIENCE_S = 3.0
_DEAD_AFTER_S = 30  # a peer that the network no longer reaches

Wanted = Sequence[frozenset[str]]
Read = Callable[[Wanted], Sequence[Mapping[str, float]]]
"""From what is wanted of each operator to what was read of it."""


class _NoAnswerError(ElastreamError):
    pass


@dataclass(kw_only=True)
class AgentClient:
    agent: Agent
    endpoint: Endpoint
    """Of the master that it is connected to, or tries next."""
    read: Read
    others: tuple[Endpoint, ...] = ()
    """Of masters that stand by, tried in turn."""
    blocks: bool = True
    """Whether reading may take long, as over a network: then it is done in a thread."""
    _writer: asyncio.StreamWriter | None = None
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    """The time of the next reading may be another than before."""
    _takes_s: float = 0.0
    """How long the last reading took."""
    _last_logged: str = ""
    _thinned_before: int = 0
    _told_of_thinning: bool = False

    async def run(self) -> None:
        """Until it is cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._keep_reading())
            tasks.create_task(self._stay_connected())

    # Reading

    async def _keep_reading(self) -> None:
        while True:
            await self._until_due()
            wanted, began_s = self.agent.wanted, time.monotonic()
            try:
                values = await asyncio.to_thread(self.read, wanted) if self.blocks else self.read(wanted)
            except Exception as error:  # of someone else's code: an agent that says nothing is of no use
                self._log(logging.WARNING, f"nothing could be read: {type(error).__name__}: {error}")
                values = [{} for _ in wanted]
            self._takes_s = time.monotonic() - began_s
            self.agent.read(values, time.monotonic())
            self._tell_of_thinning()
            self._send()

    async def _until_due(self) -> None:
        while True:
            self._changed.clear()
            due_s = self.agent.due_s(self._takes_s)
            left_s = None if due_s is None else due_s - time.monotonic()
            if left_s is not None and left_s <= 0:
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await self._changed.wait()

    def _tell_of_thinning(self) -> None:
        """Once in each outage."""
        if self.agent.thinned > self._thinned_before and not self._told_of_thinning:
            self._told_of_thinning = True
            what = "of the older half of what was kept, readings are given up"
            self._log(logging.WARNING, f"the outage is longer than the memory of this agent: {what}")

    def _send(self) -> None:
        """As much as the connection takes now; what is left goes with the next reading."""
        writer = self._writer
        while writer is not None and not writer.is_closing():
            message = self.agent.outgoing(time.monotonic(), time.time())
            if message is None:
                return
            writer.write(frame(message))

    # The connection

    async def _stay_connected(self) -> None:
        tried = 0
        while True:
            try:
                await self._session()
            except (ElastreamError, OSError) as error:
                again = "the next one" if self.others else "again"
                self._log(logging.WARNING, f"{self.endpoint}: {_why(error)}; trying {again}")
            self.endpoint, self.others = (*self.others, self.endpoint)[0], (*self.others, self.endpoint)[1:]
            tried += 1
            wait_s = self.agent.lost()
            await asyncio.sleep(wait_s if tried % (1 + len(self.others)) == 0 else 0)

    async def _session(self) -> None:
        async with asyncio.timeout(CONNECT_WITHIN_S):
            reader, writer = await asyncio.open_connection(
                self.endpoint.host, self.endpoint.port, ssl=self.endpoint.tls
            )
        try:
            _notice_death(writer)
            writer.write(frame(self.agent.connected(time.time())))
            await self._listen(reader, writer)
        finally:
            self._writer = None
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _listen(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        decoder = Decoder()
        while True:
            async with asyncio.timeout(self._patience_s()):
                data = await reader.read(65536)
            if not data:
                raise _NoAnswerError(
                    "the connection was closed"
                    if self._writer is not None
                    else "the master closed the connection without an answer (a wrong token?)"
                )
            for value in decoder.feed(data):
                message = master_message(value)
                self.agent.received(message, time.monotonic())
                assert not isinstance(message, Refused), "that has raised"
                if self._writer is None:
                    self._writer = writer
                    self._thinned_before, self._told_of_thinning = self.agent.thinned, False
                    self._log(logging.INFO, f"{self.endpoint}: connected")
            self._changed.set()
            self._send()

    def _patience_s(self) -> float | None:
        """Where there is another master to turn to, one that is silent for some rounds is given up."""
        if self._writer is None:
            return CONNECT_WITHIN_S
        return max(_LEAST_PATIENCE_S, _PATIENCE * self.agent.interval_s) if self.others else None

    def _log(self, level: int, text: str) -> None:
        """The same again and again is logged once; `agent` tells those of one process apart."""
        if text != self._last_logged:
            self._last_logged = text
            _log.log(level, "%s", text, extra={"agent": self.agent})


class AgentThread:
    """An agent within a program that does something else, such as an operator's own process.

    with AgentThread(client):
        work()
    """

    def __init__(self, client: AgentClient) -> None:
        self.client = client
        self._runner = asyncio.Runner()
        self._loop = self._runner.get_loop()
        self._thread = threading.Thread(target=self._run, name=f"agent {client.agent.name}", daemon=True)

    def __enter__(self) -> Self:
        self._task = self._loop.create_task(self.client.run())
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join()

    def _run(self) -> None:
        with self._runner, contextlib.suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._task)


def _notice_death(writer: asyncio.StreamWriter) -> None:
    """Without this a peer whose machine is gone is waited for for hours."""
    found = writer.get_extra_info("socket")
    if found is None:
        return
    found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", _DEAD_AFTER_S // 3), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 4)):
        if hasattr(socket, name):
            found.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * _DEAD_AFTER_S)


def _why(error: Exception) -> str:
    match error:
        case ssl.SSLCertVerificationError():
            return f"its certificate is not to be trusted: {error.verify_message}"
        case TimeoutError():
            return "no answer in time"
        case OSError(errno=int(number)) if number > 0:
            return os.strerror(number)  # asyncio has a text of its own, which repeats the address
        case _:
            return str(error)
