"""`elastream.attach(spark)`: one line in a job, and its executors follow its load.

The manager runs in a thread of its own, beside the job's. Whatever happens in it ends in its log: nothing is
raised in a thread of the job. If it ends, or is not heard of for long (a watchdog looks), the executors are given
back to what the job was configured with.
"""

from __future__ import annotations

import contextlib
import logging
import math
import re
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from elastream.attached.engine import AttachedEngine
from elastream.attached.executors import ClusterExecutors, Holder, LocalCores
from elastream.attached.policy import EXECUTORS, NAME, BatchSchedule
from elastream.attached.session import Queries, check_session
from elastream.dataflow import Dataflow
from elastream.durations import seconds
from elastream.engines.spark.executors import is_local
from elastream.engines.spark.rest import RestApi
from elastream.errors import InvalidInput
from elastream.manager.engine import Engine, EngineFailed
from elastream.manager.events import Acted, Decided, Event, Proposed, Trouble
from elastream.manager.knobs import Knobs
from elastream.manager.run import Run, header_of
from elastream.measurement import Snapshot
from elastream.options import build
from elastream.policies.catalog import Policy, create, info

_log = logging.getLogger(__name__)

ENGINE = "attached"
_LEAST_INTERVAL_S, _MOST_INTERVAL_S = 10.0, 60.0
_SILENT_S = 180.0  # for which the manager may not be heard of, if it is to keep the executors
_JOIN_S = 30.0

_attached: dict[str, Attached] = {}
"""By application: two managers of the same executors would undo each other's work."""
_lock = threading.Lock()


@dataclass(frozen=True, kw_only=True)
class AttachOptions:
    """What a user may ask of an attached job, checked."""

    latency_s: float | None = None
    min_executors: int = 1
    max_executors: int | None = None
    recommend: bool = False
    folder: Path | None = None
    policy: str = NAME
    knobs: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.policy != NAME and not info(self.policy).whole_jobs:
            raise InvalidInput(f"policy {self.policy}: sizes the operators of a pipeline, and this is a whole job")
        if self.policy.startswith("spark-"):  # they look every 100 ms at what only the driver's JVM knows
            raise InvalidInput(
                f"policy {self.policy}: not from outside of Spark; it is good for {info(self.policy).good_for}"
            )
        if self.latency_s is not None and not 0 < self.latency_s < math.inf:
            raise InvalidInput(f"latency must be a finite number above 0, found {self.latency_s:g} s")
        if self.min_executors < 1:
            raise InvalidInput(f"min_executors must be at least 1, found {self.min_executors}")
        if self.max_executors is not None and self.max_executors < self.min_executors:
            raise InvalidInput(
                f"max_executors must be at least min_executors ({self.min_executors}), found {self.max_executors}"
            )

    def settled(self) -> Knobs:
        """The manager's knobs: a window has at least a batch in it, and shrinking takes a minute of calm."""
        interval_s = min(_MOST_INTERVAL_S, max(_LEAST_INTERVAL_S, self.latency_s or 0.0))
        defaults = {"interval_s": interval_s, "scale_down_delay_s": max(60.0, 3 * interval_s)}
        if self.policy != NAME:
            defaults.update(info(self.policy).knobs)
        asked = {f"{name}_s" if f"{name}_s" in defaults else name for name in self.knobs}
        given = {**{name: value for name, value in defaults.items() if name not in asked}, **self.knobs}
        knobs = build(Knobs, given, place="knobs")
        return replace(knobs, dry_run=knobs.dry_run or self.recommend)


@dataclass
class Used:
    """Executor seconds: what the job had, and what it would have had at the size that was proposed."""

    had_s: float = 0.0
    proposed_s: float = 0.0
    _wanted: int | None = None

    def window(self, snapshot: Snapshot) -> None:
        had = snapshot.plan[EXECUTORS]
        self.had_s += had * snapshot.window_s
        self.proposed_s += (self._wanted or had) * snapshot.window_s

    def event(self, event: Event) -> None:
        if isinstance(event, Proposed):
            self._wanted = event.proposal.parallelism.get(EXECUTORS, self._wanted)


class _Job:
    """The job that the manager runs: it is running already, and goes on afterwards."""

    def __init__(self, name: str, engine: AttachedEngine) -> None:
        self.name = name
        self._engine = engine

    def graph(self) -> Dataflow:
        return self._engine.graph()

    @contextmanager
    def running(self, folder: Path) -> Iterator[Engine]:
        yield self._engine


class Attached:
    """What `attach` returns."""

    def __init__(self, *, application: str, run: Run, engine: AttachedEngine, holder: Holder, used: Used) -> None:
        self.folder = run.folder
        """Has the recording, for `elastream report` and `elastream serve`."""
        self.used = used
        self._application, self._run, self._engine, self._holder = application, run, engine, holder
        self._over = threading.Event()
        self._manager = threading.Thread(target=self._manage, name="elastream", daemon=True)
        self._watchdog = threading.Thread(target=self._watch, name="elastream-watchdog", daemon=True)

    @property
    def is_attached(self) -> bool:
        return not self._over.is_set()

    def detach(self) -> None:
        """Give the executors back as they were configured; the job goes on. Doing it again changes nothing."""
        self._run.clock.stop()
        if self._manager.is_alive() and threading.current_thread() is not self._manager:
            self._manager.join(_JOIN_S)
        self._end()

    def __enter__(self) -> Attached:
        return self

    def __exit__(self, *_: object) -> None:
        self.detach()

    def _start(self) -> None:
        self._manager.start()
        self._watchdog.start()

    def _manage(self) -> None:
        try:
            self._run.run()
        except EngineFailed as error:
            _log.info("no longer attached: %s", error)
        except BaseException:  # nothing of elastream's may end the job, or be printed as its failure
            _log.exception("elastream has failed; the job goes on as it was configured")
        finally:
            self._end()

    def _watch(self) -> None:
        silent_s = max(_SILENT_S, 6 * self._run.knobs.interval_s)
        while not self._over.wait(min(5.0, silent_s / 10)):
            quiet_s = time.monotonic() - self._engine.beat_s
            if quiet_s > silent_s:
                _log.warning("the manager was not heard of for %.0f s; the executors are given back", quiet_s)
                self._run.clock.stop()
                self._end()

    def _end(self) -> None:
        if self._over.is_set():
            return
        self._over.set()
        with _lock:
            if _attached.get(self._application) is self:
                del _attached[self._application]
        try:
            self._holder.give_back()
        except Exception as error:  # a session that is being stopped has none to give back
            _log.info("the executors were not given back: %s", type(error).__name__)


def attach(
    spark: Any,
    *,
    latency: float | str | None = None,
    max_executors: int | None = None,
    min_executors: int = 1,
    recommend: bool = False,
    folder: Path | str | None = None,
    policy: str = NAME,
    knobs: Mapping[str, Any] | None = None,
    on_event: Callable[[Any], None] = lambda _: None,
) -> Attached:
    """Keep the executors of this session's streaming queries as few as their latency allows.

    `latency` is how long a batch may take, in seconds or as text such as "10 s"; by default the trigger interval
    of each query, or 10 s where it has none. There are never more than `max_executors`, by default as many as
    Spark was configured with. With `recommend=True` nothing is changed: what would be done is logged and recorded.
    In the folder, by default out/NAME, are the manager's state and the recording. `knobs` are the manager's.
    `policy="elastic-scaling"` is for comparing, and knows no latency.

    Queries may be started before and after. `detach()` gives the executors back; so does the end of the manager,
    whatever the reason. Nothing is ever raised in a thread of the job. InvalidInput is raised here, and only here,
    for what cannot be: bounds that cross, a session that is stopped or of Spark Connect, a second `attach`.
    """
    options = AttachOptions(
        latency_s=_latency_s(latency),
        min_executors=min_executors,
        max_executors=max_executors,
        recommend=recommend,
        folder=None if folder is None else Path(folder),
        policy=policy,
        knobs=knobs or {},
    )
    check_session(spark)
    application = str(spark.sparkContext.applicationId)
    with _lock:
        if application in _attached:
            raise InvalidInput("attach: elastream is attached to this session already; detach() it first")
        found = _made(spark, application, options, on_event)
        _attached[application] = found
    found._start()
    return found


def _made(spark: Any, application: str, options: AttachOptions, on_event: Callable[[Any], None]) -> Attached:
    local = is_local(str(spark.sparkContext.master))
    holder: Holder = LocalCores(spark) if local else ClusterExecutors(spark)
    if local and not options.recommend:
        _log.warning("a local master has no executors to ask for: elastream only recommends")
        options = replace(options, recommend=True)
    api = RestApi(str(spark.sparkContext.uiWebUrl), application)
    most = options.max_executors or max(options.min_executors, holder.most())
    queries = Queries(spark, options.latency_s)
    engine = AttachedEngine(queries=queries, holder=holder, get=api.get, least=options.min_executors, most=most)
    policy: Policy = BatchSchedule() if options.policy == NAME else create(options.policy)
    knobs, used = options.settled(), Used()
    name = str(spark.sparkContext.appName)
    run = Run(
        job=_Job(name, engine),
        policy=policy,
        knobs=knobs,
        folder=options.folder or _folder(name),
        header=header_of(name, ENGINE, options.policy, policy, knobs),
        on_snapshot=used.window,
        on_event=_telling(used, on_event),
    )
    if not options.recommend:
        holder.take(options.min_executors, most)
    return Attached(application=application, run=run, engine=engine, holder=holder, used=used)


def _telling(used: Used, on_event: Callable[[Any], None]) -> Callable[[Event], None]:
    def tell(event: Event) -> None:
        used.event(event)
        match event:
            case Decided(decision=decision, dry_run=dry_run):
                why = "; ".join(str(reason) for advice in decision.advice for reason in advice.reasons)
                _log.info("%s%s (%s)", "would " if dry_run else "", decision, why)
            case Acted(outcome=outcome) if not outcome.succeeded or outcome.detail:
                _log.warning("%s", outcome.detail)
            case Trouble(what=what):
                _log.warning("%s", what)
            case _:
                pass
        with contextlib.suppress(Exception):  # whoever looks may not end it
            on_event(event)

    return tell


def _latency_s(written: float | str | None) -> float | None:
    try:
        return None if written is None else seconds(written)
    except ValueError as error:
        raise InvalidInput(f"latency: {error}") from None


def _folder(name: str) -> Path:
    """out/NAME, or a temporary one where the driver may not write there."""
    found = Path("out") / (re.sub(r"[^\w.-]+", "-", name).strip("-.") or "job")
    try:
        found.mkdir(parents=True, exist_ok=True)
    except OSError:
        found = Path(tempfile.mkdtemp(prefix="elastream-"))
    return found
