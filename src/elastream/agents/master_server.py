"""The master on a socket: an event loop in a thread of its own, so that a slow engine does not stop the readings.

The thread that evaluates asks for a round, evaluates it, and says so; what there is to tell is handed over, too.
All judgement is in `master.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import resource
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from elastream.accepting import Acceptor, Release, share_of_descriptors
from elastream.agents.master import HELLO_WITHIN_S, MOST_AGENTS, Master
from elastream.agents.messages import WrongVersionError, agent_message, frame
from elastream.agents.rounds import Close, Effect, Round, Send, Tell
from elastream.agents.subscription import Subscription
from elastream.agents.wire import Decoder, WireError
from elastream.errors import ElastreamError

_LOOK_EVERY_S = 1.0
_MOST_UNSENT_BYTES = 64 * 1024  # an agent that does not read what it is sent is closed
_MOST_NEWS = 10_000  # that wait to be told; the oldest go
_START_WITHIN_S = 30.0
_MOST_WARNINGS = 20
_WARNED_AGAIN_S = 60.0
_OTHER_FILES = 100  # beside connections


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    host: str = "127.0.0.1"
    port: int = 0
    tls: ssl.SSLContext | None = None

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class MasterServer:
    def __init__(self, master: Master, endpoint: Endpoint) -> None:
        self.master = master
        self.endpoint = endpoint
        """With the port that it listens on, once it does."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="monitoring-master", daemon=True)
        self._transports: dict[int, asyncio.Transport] = {}
        self._numbers = itertools.count(1)
        self._timer: asyncio.TimerHandle | None = None
        self._started = threading.Event()
        self._failure: Exception | None = None
        self._over = threading.Condition()
        self._round: Round | None = None
        self._warned, self._warned_since_s = 0, time.monotonic()
        self._news: deque[Tell] = deque(maxlen=_MOST_NEWS)

    # For the thread that evaluates

    def start(self) -> None:
        _allow_connections(MOST_AGENTS)
        self._thread.start()
        if not self._started.wait(_START_WITHIN_S) or self._failure is not None:
            why = "it does not start" if self._failure is None else _why(self._failure)
            raise ElastreamError(f"the master cannot listen on {self.endpoint}: {why}")

    def next_round(self, within_s: float) -> Round | None:
        """The round that is over, with those in it that nobody asked for in time; None where none is yet."""
        with self._over:
            self._over.wait_for(lambda: self._round is not None, within_s)
            found, self._round = self._round, None
            return found

    def evaluated(self, found: Round) -> None:
        self._soon(lambda: self._carry_out(self.master.evaluated(found, time.monotonic())))

    def subscribe(self, subscription: Subscription, operators: frozenset[str] | None) -> None:
        self._soon(lambda: self._carry_out(self.master.subscribe(subscription, operators)))

    def news(self) -> list[Tell]:
        """What there is to tell since the last call."""
        found = []
        with contextlib.suppress(IndexError):
            while True:
                found.append(self._news.popleft())
        return found

    def stop(self) -> None:
        self._soon(self._loop.stop)
        self._thread.join()

    def _soon(self, what: Callable[[], object]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended already
            self._loop.call_soon_threadsafe(what)

    # In the loop

    def _run(self) -> None:
        try:
            listening = self._listen()
        except (OSError, ssl.SSLError, OverflowError) as error:
            self._failure = error
            self._loop.close()
            self._started.set()
            return
        accepting = self._loop.create_task(self._acceptor(listening).run())
        self._look()
        self._started.set()
        self._loop.run_forever()
        accepting.cancel()
        listening.close()
        for transport in self._transports.values():
            transport.abort()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    def _listen(self) -> socket.socket:
        host, port = self.endpoint.host, self.endpoint.port
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, *_, address = found[0]
        listening = socket.create_server(address[:2], family=family, backlog=1024)
        self.endpoint = replace(self.endpoint, port=listening.getsockname()[1])
        return listening

    def _acceptor(self, listening: socket.socket) -> Acceptor:
        """One more than the master takes, which tells that it is full; handshakes count from their first byte."""
        return Acceptor(
            listening,
            lambda release: _Peer(self, next(self._numbers), release),
            most=share_of_descriptors(MOST_AGENTS + 1, share=0.9),
            tls=self.endpoint.tls,
            handshake_within_s=HELLO_WITHIN_S,
            make_room=self._make_room,
        )

    def _make_room(self) -> bool:
        before = len(self._transports)
        self._carry_out(self.master.make_room())
        return len(self._transports) < before

    def _look(self) -> None:
        """Now, and again when the master has to, or after a second."""
        if self._timer is not None:
            self._timer.cancel()
        now_s = time.monotonic()
        self._carry_out(self.master.look(now_s))
        self._look_for_round()
        again_s = min(self.master.looks_again_s(now_s) - now_s, _LOOK_EVERY_S)
        self._timer = self._loop.call_later(max(0.001, again_s), self._look)

    def _look_for_round(self) -> None:
        found = self.master.round(time.monotonic(), time.time())
        if found is None:
            return
        with self._over:
            # one before it that was not asked for in time is a part of it
            self._round = found if self._round is None else self._round.followed_by(found)
            self._over.notify()

    def _carry_out(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Send(connection=connection, message=message):
                    if connection in self._transports:
                        self._transports[connection].write(frame(message))
                case Close(connection=connection):
                    if connection in self._transports:
                        self._transports.pop(connection).close()
                case Tell(warning=True):
                    self._warn(effect)
                case Tell():
                    self._news.append(effect)

    def _warn(self, warning: Tell) -> None:
        """Some each minute, and then how many more there were: whoever comes again and again fills no log."""
        now_s = time.monotonic()
        if now_s - self._warned_since_s > _WARNED_AGAIN_S:
            if self._warned > _MOST_WARNINGS:
                left_out = self._warned - _MOST_WARNINGS
                self._news.append(Tell(text=f"{left_out:,} further warnings were left out", warning=True))
            self._warned_since_s, self._warned = now_s, 0
        self._warned += 1
        if self._warned <= _MOST_WARNINGS:
            self._news.append(warning)

    def opened(self, number: int, transport: asyncio.Transport) -> None:
        transport.set_write_buffer_limits(high=_MOST_UNSENT_BYTES)
        self._transports[number] = transport
        host, port, *_ = transport.get_extra_info("peername") or ("unknown", 0)
        self._carry_out(self.master.opened(number, f"{host}:{port}", time.monotonic()))

    def received(self, number: int, decoder: Decoder, data: bytes) -> None:
        self.master.counts.received_bytes += len(data)
        try:
            for value in decoder.feed(data):
                message = agent_message(value)
                self._carry_out(self.master.received(number, message, time.monotonic(), time.time()))
                if number not in self._transports:
                    return
        except WrongVersionError as error:
            self._carry_out(self.master.wrong_version(number, str(error), time.monotonic()))
        except WireError as error:
            self.broken(number, str(error))
        self._look_for_round()

    def broken(self, number: int, why: str) -> None:
        self._carry_out(self.master.broken(number, why))

    def lost(self, number: int) -> None:
        self._transports.pop(number, None)
        self._carry_out(self.master.closed(number))


class _Peer(asyncio.Protocol):
    def __init__(self, server: MasterServer, number: int, release: Release) -> None:
        self._server = server
        self._release = release
        self._number = number
        self._decoder = Decoder()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport), "a TCP connection, with or without TLS, is one"
        self._server.opened(self._number, transport)

    def data_received(self, data: bytes) -> None:
        self._server.received(self._number, self._decoder, data)

    def pause_writing(self) -> None:
        self._server.broken(self._number, "it does not read what it is sent")

    def connection_lost(self, exc: Exception | None) -> None:
        self._release()
        self._server.lost(self._number)


def _allow_connections(most: int) -> None:
    """As many as the system lets a process have; often only a thousand are allowed until one asks."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = most + _OTHER_FILES if hard == resource.RLIM_INFINITY else min(most + _OTHER_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _why(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
