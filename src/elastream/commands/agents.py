"""`elastream master` and `agent`: rules over what agents read beside the operators of any engine."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from elastream.accepting import server_tls
from elastream.agents.adaptor import ReportedSizes
from elastream.agents.agent import MOST_EARLY, Agent
from elastream.agents.agent_client import AgentClient
from elastream.agents.engine_metrics import EngineMetrics, json_metrics
from elastream.agents.master_server import Endpoint
from elastream.agents.messages import Claim
from elastream.agents.monitored import graph_of
from elastream.agents.otlp_metrics import OtlpMetrics
from elastream.agents.prometheus_metrics import PrometheusMetrics, series_of
from elastream.agents.run import MasterOptions, MasterRun, Watcher
from elastream.agents.security import TOKEN_VARIABLE, agent_tls, check_exposure, read_token
from elastream.agents.subscription import views_of
from elastream.commands.live_master import LiveMaster
from elastream.commands.logs import log_shown_by
from elastream.commands.named_engine import named_engine
from elastream.commands.serve import PageTokensOption, Shown, can_serve, serving
from elastream.commands.settings import RULES, ChosenPolicy, pairs_of, policy_and_knobs
from elastream.commands.settings import duration as duration_of
from elastream.commands.shared import JsonOption, SetOption, err, out
from elastream.dataflow import Dataflow
from elastream.errors import InvalidInput
from elastream.manager.events import Event, event_to_json
from elastream.manager.inbox import Inbox
from elastream.manager.signals import stopping_on_signals
from elastream.measurement import Snapshot
from elastream.policies.by_rules import Rules
from elastream.web.address import TOKEN_VARIABLE as PAGE_TOKEN
from elastream.web.address import Address

if TYPE_CHECKING:
    from elastream.web.feed import Feed

_log = logging.getLogger(__name__)

DEFAULT_PORT = 7474
_UNTOLD = ("proposed", "ignored", "phase", "judged")

TokenOption = Annotated[
    Path | None,
    typer.Option("--token-file", help=f"A file with the token that master and agents share; or {TOKEN_VARIABLE}."),
]


def master(
    rules: Annotated[Path, typer.Option("--rules", help="The rules, in YAML or Python; read again when changed.")],
    engine: Annotated[
        str | None,
        typer.Option(
            help="What to scale: MODULE:OBJECT with the four calls of an adaptor, the page of a run "
            f"(http://HOST:PORT; its token in {PAGE_TOKEN}), or the .yaml of a scenario to simulate. "
            "Without it the master only says what it would do."
        ),
    ] = None,
    interval: Annotated[str | None, typer.Option(help="How often agents read and rules are evaluated.")] = None,
    settings: SetOption = None,
    view: Annotated[
        list[str] | None, typer.Option(help="A metric to ask agents for although no rule looks at it; repeatable.")
    ] = None,
    host: Annotated[str, typer.Option(help="The address to listen on; by default nobody else reaches it.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(help="0 for any that is free.")] = DEFAULT_PORT,
    token_file: TokenOption = None,
    tls_certificate: Annotated[
        Path | None,
        typer.Option("--tls-certificate", "--tls-cert", help="Speak TLS, with this certificate; the page, too."),
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its key, where that is in a file of its own.")] = None,
    folder: Annotated[Path, typer.Option(help="Where the state and the recording are kept.")] = (
        Path("out") / "master"
    ),
    record: Annotated[
        bool, typer.Option("--record", help="Write every round to the recording, too, for `elastream replay`.")
    ] = False,
    duration: Annotated[str, typer.Option(help="How long, e.g. '3 min'; until Ctrl-C where not given.")] = "365 d",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Everything but the act.")] = False,
    page_port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65_535,
            metavar="PORT",
            help="Serve the page and its API on this port, as `elastream run` does.",
        ),
    ] = None,
    page_tokens: PageTokensOption = None,
    prometheus: Annotated[
        str | None,
        typer.Option(help="A Prometheus server, http://HOST:9090, for rules that name a query: promql:sum(lag)."),
    ] = None,
    standby: Annotated[
        bool, typer.Option("--standby", help="Where another master leads in this folder, wait and take over.")
    ] = False,
    lease: Annotated[
        str | None,
        typer.Option(help="Without a sign of life for so long a master is replaced; 1.5 intervals if not given."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Evaluate rules over what agents read, and scale an engine as they say.

    Agents beside the operators connect to it (`elastream agent`) and are asked for what the rules look at. Killed
    and started again in the same folder, it knows its guard times and what the rules have seen.

    Example: `elastream master --rules rules.yaml --engine http://localhost:8765`
    """
    given = pairs_of(settings) | {"file": str(rules)}
    if interval is not None:
        given["interval"] = interval
    if dry_run or engine is None:
        given["dry_run"] = "true"
    tls = server_tls(tls_certificate, tls_key)
    adaptor = ReportedSizes() if engine is None else named_engine(engine, folder)
    graph = None if engine is None else graph_of(adaptor.operators())
    chosen, knobs = policy_and_knobs(RULES, given, dataflow=graph)
    assert isinstance(chosen, Rules), "that is the policy which was asked for"
    options = MasterOptions(
        folder=folder,
        endpoint=Endpoint(host=host, port=port, tls=tls),
        token=read_token(token_file),
        views=views_of(view or ()),
        duration_s=duration_of("--duration", duration),
        record=record,
        prometheus=prometheus,
        standby=standby,
        lease_s=None if lease is None else duration_of("--lease", lease),
    )
    page = None if page_port is None else Address(port=page_port, tls=tls, tokens=page_tokens)
    exposed = check_exposure(host, options.token, options.endpoint.tls)
    with (
        LiveMaster(err if as_json else out, f"rules of {rules}") as live,
        log_shown_by(_print_log_line if as_json else live.log),
        _page(page, ChosenPolicy(name=RULES, policy=chosen, knobs=knobs), folder, graph) as (feed, inbox),
    ):
        watcher = _json_watcher() if as_json else _live_watcher(live)
        run = MasterRun(chosen, knobs, adaptor, options, _also_shown(watcher, feed), inbox)
        if exposed is not None:
            _log.warning("%s", exposed)

        def on_listening(endpoint: Endpoint) -> None:
            if as_json:
                _print_line({"event": "listening", "host": endpoint.host, "port": endpoint.port})
            else:
                acts = "says what it would do" if knobs.dry_run else f"scales {engine}"
                live.phase(f"listens on {endpoint}, {acts}")

        with stopping_on_signals(run.clock):
            run.run(on_listening)
    counts = asdict(run.server.master.counts)
    if as_json:
        _print_line({"event": "ended", **counts})
    else:
        told = ", ".join(f"{name.replace('_', ' ')} {count:,}" for name, count in counts.items())
        out.print(f"ended: {told}", soft_wrap=True)


@contextmanager
def _page(
    address: Address | None, chosen: ChosenPolicy, folder: Path, graph: Dataflow | None
) -> Iterator[tuple[Feed | None, Inbox | None]]:
    """The page of a master, as that of a run; what people ask for is looked at several times a second."""
    if address is None or not can_serve():
        yield None, None
        return
    shown = Shown(pipeline=folder.name, kind="run", engine="agents", chosen=chosen, dataflow=graph)
    with serving(shown, address, wake=lambda: None) as (feed, inbox):
        yield feed, inbox
        inbox.close()


def _also_shown(watcher: Watcher, feed: Feed | None) -> Watcher:
    if feed is None:
        return watcher

    def on_event(event: Event) -> None:
        feed.event(event)
        watcher.on_event(event)

    def on_snapshot(snapshot: Snapshot) -> None:
        feed.snapshot(snapshot)
        watcher.on_snapshot(snapshot)

    return replace(watcher, on_event=on_event, on_snapshot=on_snapshot)


def _live_watcher(live: LiveMaster) -> Watcher:
    return Watcher(on_event=live.event, on_snapshot=live.snapshot)


def _json_watcher() -> Watcher:
    def on_event(event: Event) -> None:
        if event.event not in _UNTOLD:
            _print_line(event_to_json(event))

    return Watcher(on_event=on_event)


def _print_log_line(record: logging.LogRecord) -> None:
    event = "warning" if record.levelno >= logging.WARNING else "told"
    _print_line({"event": event, "text": record.getMessage()})


def _print_line(value: dict[str, Any]) -> None:
    """One JSON value a line, at once: whoever reads them waits for the next."""
    print(json.dumps(value), flush=True)


def agent(
    operator: Annotated[
        list[str],
        typer.Option(help="OPERATOR or OPERATOR:INSTANCE that it reads for; repeatable for a host of several."),
    ],
    master: Annotated[
        str, typer.Option(help="HOST:PORT of the master; of several, with commas, whichever leads is found.")
    ] = f"127.0.0.1:{DEFAULT_PORT}",
    engine_metrics: Annotated[
        str | None,
        typer.Option(help="A file or URL with a JSON object of metrics that the engine, or the operator, keeps."),
    ] = None,
    prometheus: Annotated[
        str | None,
        typer.Option(help="An endpoint for Prometheus or OpenMetrics to read, http://HOST:PORT/metrics."),
    ] = None,
    series: Annotated[
        list[str] | None,
        typer.Option(
            help="Which of the series there, or of those that are pushed, is which metric: "
            "'queue_length=lag{topic=\"in\"}'; repeatable."
        ),
    ] = None,
    otlp_port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65_535,
            help="Take what OpenTelemetry pushes (OTLP over HTTP, in JSON) on this port of loopback.",
        ),
    ] = None,
    spark: Annotated[
        str | None,
        typer.Option(
            help="A Spark driver's page, http://HOST:4040: read what tasks and JVMs of the executors here did, or "
            "with --pid of the executors of that worker."
        ),
    ] = None,
    pid: Annotated[
        int | None, typer.Option(help="Read CPU, memory and files of this process and its children, not of all.")
    ] = None,
    cores: Annotated[float | None, typer.Option(help="Cores that the process may use, where not all.")] = None,
    disk: Annotated[Path, typer.Option(help="A folder on the disk whose space counts.")] = Path(),
    name: Annotated[
        str | None, typer.Option(help="Its identity; the host and the process where not given.")
    ] = None,
    token_file: TokenOption = None,
    tls_authority: Annotated[
        Path | None, typer.Option(help="Speak TLS, and trust a master whose certificate this one has signed.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Read metrics beside the operators of any engine and send them to a master, until Ctrl-C.

    The master says which metrics it wants, and how often. Without a connection the agent goes on reading, keeps
    what it can, and tries again.

    Example: `elastream agent --operator counts --master localhost:7474 --pid 4711`
    """
    from elastream.agents.os_metrics import MachineMetrics, ProcessMetrics  # psutil is an extra
    from elastream.agents.reader import Reader

    claims = tuple(map(_claim, operator))
    operators = tuple(claim.operator for claim in claims)
    reader = Reader(
        operators=operators,
        os_metrics=MachineMetrics(disk) if pid is None else ProcessMetrics(pid, disk, cores),
        engine=tuple(_engine_metrics(engine_metrics, prometheus, otlp_port, series or [], spark, pid, operators)),
    )
    tls = agent_tls(tls_authority)
    first, *others = (replace(_endpoint(one.strip()), tls=tls) for one in master.split(","))
    its = Agent(
        name=name or f"{socket.gethostname()}/{os.getpid()}",
        run=uuid.uuid4().hex,
        claims=claims,
        offers=reader.offers,
        token=read_token(token_file),
    )
    client = AgentClient(
        agent=its,
        endpoint=first,
        others=tuple(others),
        read=lambda wanted: reader(wanted, its.interval_s * MOST_EARLY),
    )
    show = _print_log_line if as_json else lambda record: out.print(record.getMessage(), soft_wrap=True)
    with log_shown_by(show), suppress(asyncio.CancelledError):
        asyncio.run(_until_stopped(client))


def _engine_metrics(
    where: str | None,
    prometheus: str | None,
    otlp_port: int | None,
    series: list[str],
    spark: str | None,
    pid: int | None,
    operators: tuple[str, ...],
) -> Iterator[EngineMetrics]:
    """All that were asked for; the later ones know better."""
    if prometheus is not None and otlp_port is not None:
        raise InvalidInput("--prometheus and --otlp-port: an agent reads one of them")
    if (prometheus is None and otlp_port is None) != (not series):
        raise InvalidInput("--prometheus or --otlp-port, and --series (what is which metric) go together")
    if where is not None:
        yield json_metrics(where, operators)
    if spark is not None:
        from elastream.agents.spark_metrics import SparkMetrics, executors_here

        yield SparkMetrics(spark, operators, lambda application: executors_here(application, pid))
    known = tuple(series_of(one, operators) for one in series)
    if prometheus is not None:
        yield PrometheusMetrics(prometheus, known)
    if otlp_port is not None:
        yield OtlpMetrics(otlp_port, known)


async def _until_stopped(client: AgentClient) -> None:
    task = asyncio.current_task()
    assert task is not None, "this runs in one"
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    await client.run()


def _claim(written: str) -> Claim:
    operator, colon, instance = written.rpartition(":")
    numbered = bool(colon and operator and instance.isdecimal())
    claim = Claim(operator, int(instance)) if numbered else Claim(written)
    if not claim.operator.strip() or len(claim.operator) > 200:
        raise InvalidInput(f"--operator takes OPERATOR or OPERATOR:INSTANCE, found {written!r}")
    return claim


def _endpoint(written: str) -> Endpoint:
    host, colon, port = written.rpartition(":")
    if not colon or not port.isdecimal() or not 0 < int(port) < 65536:
        raise InvalidInput(f"--master takes HOST:PORT, found {written!r}")
    return Endpoint(host=host.removeprefix("[").removesuffix("]") or "127.0.0.1", port=int(port))
