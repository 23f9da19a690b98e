"""Control messages over TCP, on the loopback address: a connection for each direction, a JSON object on each line.

Thin: what is said, and what a broken connection or a stale process means, is decided in `link.py` and
`control.py`. Where somebody listens is in its folder (`endpoint.json`), and read anew for each attempt to reach
it. Everyone on the machine can connect, so that both sides prove that they know the key of the run
(`run_key.py`) before anything is believed; who does not is closed, soon and in few words.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from elastream.decentralized.errors import IllegalEvent
from elastream.decentralized.protocol.link import LinkBroken, Stale
from elastream.decentralized.protocol.messages import Address
from elastream.decentralized.spark.folders import RunFolder, read_whole, write_whole
from elastream.decentralized.spark.living_protocol import LivingProtocol, Record
from elastream.decentralized.spark.run_key import RunKey
from elastream.errors import ElastreamError
from elastream.formats import read_json

_HOST = "127.0.0.1"
_RETRY_S = 0.2
_LONGEST_RETRY_S = 2.0
_ANSWER_S = 30.0
_LONGEST_LINE = 1024 * 1024
_HELLO_WITHIN_S = 5.0
_MOST_CONNECTIONS = 128
_MOST_REFUSALS = 50  # that are written down
_GREETINGS = 6  # in vain, before somebody is suspected
_NOT_REACHED = (OSError, EOFError, ValueError, KeyError, TypeError, OverflowError, ElastreamError)


class TcpTransport:
    def __init__(
        self,
        protocol: LivingProtocol,
        run: RunFolder,
        *,
        dead_after_s: float,
        record: Record,
        on_stale: Callable[[str], None],
    ) -> None:
        self._dead_after_s = dead_after_s
        self._protocol = protocol
        self._run = run
        self._record = record
        self._on_stale = on_stale
        self._loop = asyncio.new_event_loop()
        self._news = asyncio.Event()
        self._senders: dict[Address, asyncio.Task[None]] = {}
        self._stopped = False
        self._key = RunKey(run.path)
        self._nonce = secrets.token_hex(16)
        """Of this listener: what was said to the one before it cannot be said again to this one."""
        self._connections = self._refusals = 0
        self._thread = threading.Thread(target=self._run_loop, daemon=True)

    def start(self) -> None:
        """Listen, and send what waits."""
        self._protocol.on_news = self._wake
        self._thread.start()

    def stop(self) -> None:
        """Break all connections off."""
        self._stopped = True
        self._wake()
        self._thread.join()

    def _wake(self) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._news.set)

    def _run_loop(self) -> None:
        with contextlib.closing(self._loop):
            self._loop.run_until_complete(self._main())

    async def _main(self) -> None:
        server = await asyncio.start_server(self._accept, _HOST, 0, limit=_LONGEST_LINE)
        host, port = server.sockets[0].getsockname()[:2]
        endpoint = {"host": host, "port": port, "incarnation": self._protocol.incarnation, "pid": os.getpid()}
        endpoint["nonce"] = self._nonce
        write_whole(self._run.instance(self._protocol.me).endpoint, endpoint)
        watching = self._loop.create_task(self._keep_watching())
        while not self._stopped:
            if watching.done():
                watching.result()
            for receiver in self._protocol.waiting():
                task = self._senders.get(receiver)
                if task is None or task.done():
                    self._senders[receiver] = self._loop.create_task(self._keep_sending(receiver))
            await self._news.wait()
            self._news.clear()
        server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    # Sending

    async def _keep_sending(self, receiver: Address) -> None:
        """Until nothing waits for this receiver any more."""
        pause_s = _RETRY_S
        while receiver in self._protocol.waiting():
            if self._run.instance(receiver).has_ended:
                self._protocol.given_up(receiver)
                return
            try:
                await self._send_what_waits(receiver)
                pause_s = _RETRY_S
            except _NOT_REACHED:
                # also where it still listens elsewhere, or answers what is no answer
                await asyncio.sleep(pause_s)
                pause_s = min(_LONGEST_RETRY_S, 2 * pause_s)

    async def _send_what_waits(self, receiver: Address) -> None:
        async with self._connection(receiver) as (reader, writer):
            while waiting := self._protocol.waiting().get(receiver):
                first = waiting[0]
                answer = await self._ask(reader, writer, {"number": first.number, "body": first.body})
                self._protocol.acknowledged(receiver, answer["acknowledged"])

    @contextlib.asynccontextmanager
    async def _connection(
        self, receiver: Address
    ) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        """To somebody who proved to be of this run, and has said what it has taken in."""
        endpoint = read_whole(self._run.instance(receiver).endpoint)
        if endpoint is None:
            raise ConnectionRefusedError(f"{receiver!r} does not listen yet")
        reader, writer = await asyncio.open_connection(endpoint["host"], endpoint["port"], limit=_LONGEST_LINE)
        with contextlib.closing(writer):
            me, incarnation, nonce = self._protocol.me, self._protocol.incarnation, secrets.token_hex(16)
            proof = self._key.proof("hello", me, receiver, incarnation, endpoint.get("nonce"), nonce)
            hello = {"hello": me, "to": receiver, "incarnation": incarnation, "nonce": nonce, "proof": proof}
            welcome = await self._ask(reader, writer, hello)
            self._key.check(welcome.get("proof"), "welcome", nonce, welcome["taken"])
            self._protocol.acknowledged(receiver, welcome["taken"])
            yield reader, writer

    # Watching

    async def _keep_watching(self) -> None:
        """Greet whoever would be waited for, and report who does not answer for long. Attempts are counted, not
        seconds: a machine that was asleep suspects nobody when it wakes."""
        period_s = self._dead_after_s / _GREETINGS
        missed: dict[Address, int] = {}
        while not self._stopped:
            await asyncio.sleep(period_s)
            watched = sorted(self._protocol.watched())
            answers = await asyncio.gather(*(self._answers(one) for one in watched))
            silent = [one for one, answered in zip(watched, answers, strict=True) if not answered]
            missed = {one: missed.get(one, 0) + 1 for one in silent}
            for one, count in missed.items():
                if count % _GREETINGS == 0 and not self._run.instance(one).has_ended:
                    self._protocol.suspect(one)

    async def _answers(self, whom: Address) -> bool:
        try:
            async with asyncio.timeout(self._dead_after_s / _GREETINGS), self._connection(whom):
                return True
        except _NOT_REACHED:
            return False

    async def _ask(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, line: dict[str, Any]
    ) -> dict[str, Any]:
        await _write(writer, line)
        answer = await asyncio.wait_for(_read(reader), _ANSWER_S)
        if answer is None:
            raise EOFError
        if "refused" in answer:
            if answer.get("stale"):
                self._on_stale(answer["refused"])
            raise LinkBroken(answer["refused"])
        return answer

    # Receiving

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._connections >= _MOST_CONNECTIONS:
            writer.transport.abort()
            return
        with contextlib.closing(writer), contextlib.suppress(OSError, TimeoutError), self._counted():
            try:
                await self._listen(reader, writer)
            except Stale as error:
                self._refused(f"a stale instance: {error}")
                await _write(writer, {"refused": str(error), "stale": True})
            except (ElastreamError, ValueError, KeyError, TypeError, OverflowError) as error:
                why = str(error) if isinstance(error, ElastreamError) else f"not understood: {error}"
                self._refused(why)
                await _write(writer, {"refused": why})

    @contextlib.contextmanager
    def _counted(self) -> Iterator[None]:
        self._connections += 1
        try:
            yield
        finally:
            self._connections -= 1

    def _refused(self, why: str) -> None:
        """Whoever tries again and again fills no disk."""
        self._refusals += 1
        if self._refusals <= _MOST_REFUSALS:
            self._record("refused", why=why[:500])

    async def _listen(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        hello = await asyncio.wait_for(_read(reader), _HELLO_WITHIN_S)
        if hello is None:
            return
        sender, to, incarnation = str(hello["hello"]), str(hello["to"]), int(hello["incarnation"])
        nonce = str(hello.get("nonce"))
        self._key.check(hello.get("proof"), "hello", sender, to, incarnation, self._nonce, nonce)
        taken = self._protocol.greeted(sender, to, incarnation)
        await _write(writer, {"taken": taken, "proof": self._key.proof("welcome", nonce, taken)})
        while (line := await _read(reader)) is not None:
            number = int(line["number"])
            self._protocol.received(sender, incarnation, number, dict(line["body"]))
            await _write(writer, {"acknowledged": number})


async def _write(writer: asyncio.StreamWriter, line: dict[str, Any]) -> None:
    writer.write(json.dumps(line).encode() + b"\n")
    await writer.drain()


async def _read(reader: asyncio.StreamReader) -> dict[str, Any] | None:
    """None at the end of the connection."""
    line = await reader.readline()
    if not line:
        return None
    found = read_json(line.decode(), "a line")
    if not isinstance(found, dict):
        raise IllegalEvent(f"a line is a JSON object, found {type(found).__name__}")
    return found
