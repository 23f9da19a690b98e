"""Running a pipeline from Python: what `elastream run` does, without a page and without printing."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from elastream.dataflow import Dataflow
from elastream.durations import seconds
from elastream.engines.registry import engine_kind, read_job
from elastream.engines.spark.kind import Spark
from elastream.engines.spark.pipeline import Pipeline
from elastream.engines.spark.session_conf import checked_conf, merged_packages, packages_of
from elastream.errors import ElastreamError, InvalidInput
from elastream.manager.engine import EngineKind, KeepsLatency
from elastream.manager.events import Acted, Decided, Event, Trouble
from elastream.manager.knobs import Knobs
from elastream.manager.run import Run, header_of
from elastream.measurement import Snapshot
from elastream.options import build
from elastream.policies.by_rules import Rules
from elastream.policies.catalog import Policy, create, info, keeping

_log = logging.getLogger(__name__)


def run(
    target: Pipeline | Path | str,
    *,
    policy: str | Policy = "ds2",
    policy_options: Mapping[str, Any] | None = None,
    knobs: Mapping[str, Any] | None = None,
    engine: str = "spark",
    engine_options: Mapping[str, Any] | None = None,
    conf: Mapping[str, Any] | None = None,
    packages: Sequence[str] = (),
    arguments: Sequence[str] = (),
    folder: Path | str | None = None,
    duration: float | str | None = None,
    on_snapshot: Callable[[Snapshot], None] = lambda _: None,
    on_event: Callable[[Any], None] = lambda _: None,
) -> None:
    """Run a pipeline and keep it at the right size, until the time is up, or until Ctrl-C.

    `target` is what the engine runs: for Spark a Pipeline, or a file that defines one. Options and knobs are given
    by name, as on the command line: `engine_options={"master": "local[4]"}`, `knobs={"interval": "30 s"}`. For
    Spark, `conf` are settings of the session and `packages` what it fetches from Maven, beside those of the
    pipeline, as with `--conf` and `--packages`; `arguments` are what a file finds in `sys.argv`.
    `duration` is in seconds, or text such as "3 min". In the folder, by default out/NAME, are the recording and
    what is needed to go on after the end.

    What is done is logged to `elastream.running`. `on_snapshot` and `on_event` are called with every window and
    with what the manager does, by the thread that runs it. ElastreamError is raised at the end of a run in
    which a step failed and did not work again.
    """
    kind = _for_spark(engine_kind(engine, engine_options), conf, packages, arguments)
    job = read_job(engine, kind, Path(target) if isinstance(target, str) else target)
    name = policy if isinstance(policy, str) else type(policy).__name__
    latency_s = job.latency_s if isinstance(job, KeepsLatency) else None
    chosen = keeping(_policy(policy, policy_options, job.graph()), latency_s)
    of_authors = info(policy).knobs if isinstance(policy, str) else {}
    settled = build(Knobs, {**of_authors, **(knobs or {})}, place="knobs")

    def log_and_tell(event: Event) -> None:
        _log_event(event)
        on_event(event)

    unsettled = Run(
        job=job,
        policy=chosen,
        knobs=settled,
        folder=Path("out") / job.name if folder is None else Path(folder),
        header=header_of(job.name, engine, name, chosen, settled),
        duration_s=_duration_s(duration),
        on_snapshot=on_snapshot,
        on_event=log_and_tell,
    ).run()
    if unsettled:
        raise ElastreamError("; ".join(unsettled))


def _for_spark(
    kind: EngineKind, conf: Mapping[str, Any] | None, packages: Sequence[str], arguments: Sequence[str]
) -> EngineKind:
    """With what only Spark has, and what is not a text, as the options of engines are."""
    if not (conf or packages or arguments):
        return kind
    if not isinstance(kind, Spark):
        raise InvalidInput("conf, packages and arguments are for the engine spark")
    return replace(
        kind,
        conf={**kind.conf, **checked_conf(conf or {})},
        packages=merged_packages(kind.packages, packages_of(packages)),
        arguments=tuple(arguments),
    )


def _policy(policy: str | Policy, options: Mapping[str, Any] | None, dataflow: Dataflow) -> Policy:
    chosen = create(policy, options) if isinstance(policy, str) else policy
    if not isinstance(chosen, Rules):
        return chosen
    if isinstance(policy, str) and not chosen.file:
        raise InvalidInput("policy_options: the policy rules needs a file with rules, as `file`")
    return chosen.for_pipeline(dataflow)


def _duration_s(written: float | str | None) -> float | None:
    try:
        return None if written is None else seconds(written)
    except ValueError as error:
        raise InvalidInput(f"duration: {error}") from None


def _log_event(event: Event) -> None:
    match event:
        case Decided(decision=decision, dry_run=dry_run):
            _log.info("%s%s: %s", "would " if dry_run else "", decision.kind, decision)
        case Acted(outcome=outcome):
            level = logging.INFO if outcome.succeeded else logging.WARNING
            done = "done in" if outcome.succeeded else "failed after"
            _log.log(level, "%s %.2f s %s", done, outcome.took_s, outcome.detail)
        case Trouble(what=what):
            _log.warning("%s", what)
