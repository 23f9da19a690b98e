"""A million mutated inputs for everything that parses: files, frames, requests, rules.

Each begins as something right, a part of which is overwritten, cut, repeated or replaced by what is known to hurt
(numbers without end, half characters, aliases, a thousand brackets). What it may lead to is a value or an error in
a sentence. The time is that of the processor, as others use the machine; the memory is the highest that the
process ever had, so that nothing can hide between two looks.
"""

from __future__ import annotations

import json
import logging
import random
import resource
import shutil
import socket
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import wire_fuzz
from benchmarks.measure import Measure, Report
from elastream.agents.engine_metrics import metrics_of
from elastream.agents.messages import agent_message
from elastream.agents.prometheus_metrics import scraped, series_of
from elastream.agents.wire import Decoder
from elastream.arrivals.load import read_trace
from elastream.decentralized.protocol.control import ControlState, control_from_json, control_to_json
from elastream.decentralized.protocol.instance import InstanceState
from elastream.decentralized.protocol.messages import Start
from elastream.decentralized.protocol.wire import message_from_json, message_to_json
from elastream.durations import seconds
from elastream.engines.simulated.scenario import read_scenario
from elastream.errors import ElastreamError
from elastream.forecast.calendar_format import parse_calendar
from elastream.formats import read_json
from elastream.manager.inbox import Inbox
from elastream.manager.knobs import Knobs
from elastream.manager.state import initial_state, state_from_json, state_to_json
from elastream.measurement.recording import read_line, read_recording
from elastream.measurement.snapshot_format import snapshot_from_json
from elastream.nodes.files import read_worker_nodes
from elastream.policies.rules.yaml_form import parse_rules
from elastream.showing.views import ConfigurationView
from elastream.web.actions import Acting
from elastream.web.address import Address
from elastream.web.feed import Feed
from elastream.web.rules_file import RulesFile
from elastream.web.server import Server
from elastream.web.tokens import Tokens

MOST_S = 1.0
MOST_BYTES = 200_000_000
_EXAMPLES = Path(__file__).parents[1] / "examples"
_TOKEN = "token"
_MOST_TEXT = 5_000
"""Of an error: a sentence, with the place and what was found."""

Parse = Callable[[bytes], object]

_HURTING = (
    b"", b"null", b"-1", b"0", b"1e400", b"-1e400", b"1e-400", b"NaN", b"Infinity", b"9" * 5_000,
    b"1" + b"0" * 400,
    b"18446744073709551616", b"0x" + b"f" * 500, b'"\\ud800"', b"\\udfff", b"\xff\xfe", b"\x00", b"\xed\xa0\x80",
    "\u202e\u2028\ufeff".encode(), b"[" * 1_000, b"{" * 1_000, b'{"a":' * 1_000, b"a" * 20_000, b"\n" * 5_000,
    b"&a [*a]", b"&b {*b: *b}", b"<<: *x", b"!!python/object:os.system x", b"!!bool x", b"!!timestamp 0",
    b"&x [1,1,1,1,1,1,1,1,1]\n- &y [*x,*x,*x,*x,*x,*x,*x,*x]\n- &z [*y,*y,*y,*y,*y,*y,*y,*y]", b"- " * 500,
    b"%s%n{0}", b"../../../etc/passwd", b"1_000", b"1:30:00", b"2001-99-99", b"? : :", b"\t", b"\r\n\r\n",
    b"| " * 200,
    b"1e999999999 s", b"99999999999999 d", b"1 s s", b"1e18 d", b"-1 s",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Target:
    name: str
    right: tuple[bytes, ...]
    parse: Parse
    refusals: tuple[type[Exception], ...] = (ElastreamError,)
    share: float = 1.0
    """Of the inputs, beside those of the others."""


@dataclass
class Found:
    outcomes: Counter[str] = field(default_factory=Counter)
    longest_s: float = 0.0
    longest_of: str = ""
    faults: list[str] = field(default_factory=list)


def run(*, inputs: int = 1_000_000, seed: int = 1, kept: Path | None = Path("out/mutated-inputs")) -> Report:
    """Inputs that do what they may not are `kept`."""
    rng, found = random.Random(seed), Found()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=_in_memory())))
        targets = [*_files(folder), *_texts(), *_frames(), stack.enter_context(_requests(found))]
        for target in targets:  # what is made once is made now
            for content in target.right:
                _try(target, content, found, kept)
        before = _peak_bytes()
        whole = sum(target.share for target in targets)
        for target in targets:
            for _ in range(round(inputs * target.share / whole)):
                _try(target, mutated(rng.choice(target.right), rng), found, kept)
    growth = _peak_bytes() - before
    return Report(
        measures=(
            Measure(what="inputs", value=sum(found.outcomes.values()), unit="", at_least=0.99 * inputs),
            Measure(what="tracebacks", value=len(found.faults), unit="", at_most=0),
            Measure(what="longest", value=found.longest_s, unit="s", at_most=MOST_S),
            Measure(what="growth of memory at its peak", value=growth / 1e6, unit="MB", at_most=MOST_BYTES / 1e6),
        ),
        notes=(
            ", ".join(f"{name}: {count:,}" for name, count in sorted(found.outcomes.items())),
            f"the longest was for {found.longest_of}",
            *found.faults[:20],
        ),
    )


def mutated(content: bytes, rng: random.Random) -> bytes:
    """With one to four changes."""
    for _ in range(rng.choice((1, 1, 1, 2, 3, 4))):
        first = rng.randrange(len(content) + 1)
        last = min(len(content), first + int(rng.expovariate(1 / 12)))
        part = content[first:last]
        match rng.randrange(7):
            case 0:
                put = rng.randbytes(rng.randrange(1, 5))
            case 1:
                put = b""
            case 2:
                put = part * rng.choice((2, 3, 10, 100))
            case 3:
                put = content[rng.randrange(len(content) + 1) :][: rng.randrange(200)]
            case 4:
                first, last = _value_at(content, first)
                put = rng.choice(_HURTING)
            case 5:
                put = rng.choice(_HURTING)
            case _:
                put = bytes(byte ^ (1 << rng.randrange(8)) for byte in part[:3]) + part[3:]
        content = (content[:first] + put + content[last:])[:100_000]
    return content


def _value_at(content: bytes, near: int) -> tuple[int, int]:
    """From the colon or comma before to the end of what stands there."""
    first = max(content.rfind(b":", 0, near), content.rfind(b",", 0, near)) + 1
    ends = [at for mark in (b",", b"\n", b"}", b"]") if (at := content.find(mark, first)) >= 0]
    return first, min(ends, default=len(content))


def _try(target: Target, content: bytes, found: Found, kept: Path | None) -> None:
    faults = len(found.faults)
    began_s = time.process_time()
    try:
        target.parse(content)
        outcome = "read"
    except target.refusals as error:
        outcome = "refused"
        if len(str(error)) > _MOST_TEXT:
            found.faults.append(f"{target.name}: an error of {len(str(error)):,} characters")
    except Exception as error:  # whatever it is: that it came through is what is looked for
        outcome = "fell"
        found.faults.append(f"{target.name}: {type(error).__name__}: {str(error)[:200]}")
    took_s = time.process_time() - began_s
    found.outcomes[f"{target.name} {outcome}"] += 1
    if took_s > found.longest_s:
        found.longest_s, found.longest_of = took_s, target.name
    if kept is not None and (took_s > MOST_S or len(found.faults) > faults):
        kept.mkdir(parents=True, exist_ok=True)
        (kept / f"{target.name}-{len(found.faults)}-{took_s:.1f}s").write_bytes(content)


# What parses


def _files(folder: Path) -> Iterator[Target]:
    """Whole files, as a user names them."""
    snapshot = (_EXAMPLES / "snapshot.json").read_bytes()
    line = json.dumps(json.loads(snapshot)).encode()
    shutil.copytree(_EXAMPLES / "paper_workloads", folder / "paper_workloads")
    path = folder / "file"

    def of(read: Callable[[Path], object]) -> Parse:
        def parse(content: bytes) -> object:
            path.write_bytes(content)
            return read(path)

        return parse

    scenarios = tuple((_EXAMPLES / f"{name}.yaml").read_bytes() for name in ("wordcount", "clickstream"))
    trace = b"time_s,records_per_s\n0,10\n60,20\n120,5\n"
    yield Target(name="scenario", right=scenarios, parse=of(read_scenario), share=1)
    yield Target(
        name="nodes", right=((_EXAMPLES / "nodes.yaml").read_bytes(),), parse=of(read_worker_nodes), share=2
    )
    yield Target(name="trace", right=(trace,), parse=of(read_trace), share=6)
    yield Target(name="recording", right=(line + b"\n" + line + b"\n",), parse=of(read_recording), share=4)


def _texts() -> Iterator[Target]:
    snapshot = (_EXAMPLES / "snapshot.json").read_bytes()
    rules = (_EXAMPLES / "rules.yaml").read_bytes(), (_EXAMPLES / "google_trace_rules.yaml").read_bytes()
    calendar = (
        b'timezone: Europe/Berlin\nevents:\n  - {name: work, every: weekday, at: "09:00", for: 2 h, factor: 1.5}\n'
        b"  - {name: Friday, date: 2026-11-27, floor: 5000}\n"
        b'excluded:\n  - {name: closing, every: friday, at: "17:00", for: 4 h}\n'
    )
    metrics = b'{"map": {"queue_length": 120, "latency": 0.4}, "counts": {"cpu_utilization": 80}}'
    state = state_to_json(initial_state(Knobs())).encode()

    def text(parse: Callable[[str], object]) -> Parse:
        return lambda content: parse(content.decode(errors="replace"))

    yield Target(
        name="snapshot", right=(snapshot,), share=8,
        parse=text(lambda found: snapshot_from_json(read_json(found, "here"), place="here")),
    )  # fmt: skip
    yield Target(
        name="line",
        right=(json.dumps(json.loads(snapshot)).encode(), b'{"event": "held", "at_s": 1.5, "why": "warm-up"}'),
        parse=text(lambda found: read_line(found, "here")),
        share=12,
    )
    yield Target(name="rules", right=rules, parse=text(lambda found: parse_rules(found, "here")), share=2)
    yield Target(
        name="checked rules", right=rules, share=1,
        parse=text(RulesFile(path=Path("rules.yaml"), dataflow=None).check),
    )  # fmt: skip
    yield Target(
        name="calendar", right=(calendar,), parse=text(lambda found: parse_calendar(found, "here")), share=2
    )
    yield Target(
        name="state", right=(state,), parse=text(lambda found: state_from_json(found, place="here")), share=6
    )
    yield Target(
        name="metrics", right=(metrics,), share=12,
        parse=text(lambda found: metrics_of(read_json(found, "here"), ("map", "counts"), place="here")),
    )  # fmt: skip
    exposition = b'# TYPE lag gauge\nlag{topic="in",of="a\\"b"} 12 1700000000\nrecords_total 3e9 # {a="b"} 1\n'
    yield Target(name="exposition", right=(exposition,), parse=text(scraped), share=12)
    series = b'queue_length=rate(kafka_lag{topic="in"})', b"map.latency=latency_seconds"
    yield Target(
        name="series", right=series, parse=text(lambda found: series_of(found, ("map", "counts"))), share=12
    )
    durations = b"500 ms", b"1.5 h", b"10 min"
    yield Target(
        name="duration", right=durations, parse=text(seconds), refusals=(ElastreamError, ValueError), share=4
    )


def _frames() -> Iterator[Target]:
    """Of agents; and of decentralized instances, whose listener answers what it does not understand."""

    def frames(content: bytes) -> None:
        for value in Decoder().feed(content):
            agent_message(value)

    yield Target(name="frame", right=wire_fuzz.GOOD, parse=frames, share=12)
    body = json.dumps(message_to_json(Start(frozenset({"sink/0"}), frozenset({"source/0"})))).encode()
    control = control_to_json(ControlState(instance=InstanceState()))
    understood = (ElastreamError, ValueError, KeyError, TypeError)

    def message(content: bytes) -> object:
        return message_from_json(read_json(content.decode(), "here"))

    def controlled(content: bytes) -> object:
        return control_from_json(read_json(content.decode(), "here"))

    yield Target(name="message", right=(body,), parse=message, refusals=understood, share=8)
    yield Target(
        name="control", right=(json.dumps(control).encode(),), parse=controlled, refusals=understood, share=4
    )


@contextmanager
def _requests(found: Found) -> Iterator[Target]:
    """A server on loopback, and what is sent to it as bytes; it answers with anything but an error of its own."""
    configuration = ConfigurationView(
        pipeline="p", shown="run", policy="ds2", options=(), knobs=(), rules_file=None, acts=True
    )
    rules = RulesFile(path=_EXAMPLES / "rules.yaml", dataflow=None)
    inbox = Inbox(lambda: None)
    acting = Acting(inbox=inbox, rules=rules)
    handler = _Collecting(found)
    with Server(Feed("p"), configuration, Address(port=0), acting=acting, tokens=Tokens(_TOKEN)) as server:
        logging.getLogger().addHandler(handler)

        def request(content: bytes) -> None:
            answer = _answer(server.port, content)
            if b"HTTP/1.1 50" in answer and b"HTTP/1.1 503" not in answer:
                found.faults.append(f"request: {answer[:200]!r}")

        try:
            yield Target(name="request", right=tuple(_right_requests(server.port)), parse=request, share=3)
        finally:
            logging.getLogger().removeHandler(handler)


class _Collecting(logging.Handler):
    """A traceback in the log is one that came through."""

    def __init__(self, found: Found) -> None:
        super().__init__(logging.ERROR)
        self._found = found

    def emit(self, record: logging.LogRecord) -> None:
        self._found.faults.append(f"log: {record.getMessage()[:200]} {record.exc_info}")


def _right_requests(port: int) -> Iterator[bytes]:
    """None that is meant well is carried out here: the server has a rules file, and no manager."""
    bodies: Mapping[str, Any] = {
        "POST /api/v1/rules/check": {"text": (_EXAMPLES / "rules.yaml").read_text()[:600]},
        "POST /api/v1/rules/take-back": {"version": "nonesuch"},
        "GET /api/v1/events?after=3&limit=10": None,
        "GET /api/v1/run": None,
        "GET /metrics": None,
        "GET /app.js": None,
        "GET /api/v1/rules": None,
    }
    for what, body in bodies.items():
        sent = b"" if body is None else json.dumps(body).encode()
        head = f"{what} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n"
        head += f"Accept: application/openmetrics-text; version=1.0.0\r\nAuthorization: Bearer {_TOKEN}\r\n"
        if body is not None:
            head += f"Content-Type: application/json\r\nContent-Length: {len(sent)}\r\n"
        yield head.encode() + b"\r\n" + sent


def _answer(port: int, content: bytes) -> bytes:
    answer = b""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        try:
            connection.sendall(content)
            connection.shutdown(socket.SHUT_WR)
            while got := connection.recv(65_536):
                answer = (answer + got)[:1_000_000]
        except ConnectionError:
            pass
    return answer


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1_024


def _in_memory() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None
