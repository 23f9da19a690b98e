"""`elastream decentralized` and `capacity`: instances that scale themselves, and what one of them can do."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import TypeAdapter, ValidationError
from rich.live import Live
from rich.table import Table

from elastream.commands.as_json import print_json
from elastream.commands.pipeline_file import TakesArguments, arguments_of_file
from elastream.commands.settings import duration as duration_of
from elastream.commands.settings import pairs_of
from elastream.commands.shared import JsonOption, err, out
from elastream.commands.waiting import waiting
from elastream.decentralized.locks import LockKind
from elastream.decentralized.protocol.capacity_ramp import MeasuredCapacity, core_counts
from elastream.decentralized.protocol.decision import ScalingPolicy
from elastream.errors import InvalidInput, nearest

_LOOK_S = 1.0

decentralized_app = typer.Typer(
    help="Instances that scale themselves, each a process with its own Spark: no manager, no central process.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)
FolderOption = Annotated[Path | None, typer.Option(help="Where the run keeps everything; by default below out/.")]
CapacityOption = Annotated[
    list[str] | None,
    typer.Option(
        "--capacity",
        metavar="OPERATOR=N",
        help="Records per second that an instance can process; an operator without one stays at one instance.",
    ),
]


@decentralized_app.command(cls=TakesArguments)
def run(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(help="A Python file with a Pipeline, such as examples/taxi_zones.py.")],
    capacity: CapacityOption = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", "-s", metavar="NAME=VALUE", help="Of the policy: target_load, upper_load, ..."),
    ] = None,
    locks: Annotated[
        LockKind,
        typer.Option(
            metavar="KIND",
            help="What keeps neighbouring operators from scaling at the same time: none, 2-fgme, ra1 or ra2.",
        ),
    ] = LockKind.NONE,
    period: Annotated[str, typer.Option(help="Between two decisions of an instance.")] = "10 s",
    batch_interval: Annotated[str, typer.Option(help="How often an instance takes a batch.")] = "2 s",
    dead_after: Annotated[
        str, typer.Option(help="Give up a copy that cannot be reached for so long: others take over its records.")
    ] = "60 s",
    duration: Annotated[str, typer.Option(help="How long, e.g. '3 min'; until Ctrl-C where not given.")] = "365 d",
    seed: Annotated[int, typer.Option(help="Of the dice that the instances throw.")] = 0,
    control: Annotated[str, typer.Option(help="What carries control messages: tcp or kafka.")] = "tcp",
    data: Annotated[
        str, typer.Option(help="Where records lie between instances: files, or topics that they share: kafka.")
    ] = "files",
    kafka_servers: Annotated[
        str, typer.Option(help="For --control and --data kafka; `elastream kafka start` runs a broker.")
    ] = "localhost:9092",
    folder: FolderOption = None,
    fresh: Annotated[bool, typer.Option(help="Begin anew: delete what an earlier run left there.")] = False,
    generate: Annotated[bool, typer.Option(help="Write the file's own load to its feed.")] = True,
    as_json: JsonOption = False,
) -> None:
    """Start the first instance of each operator, then only watch.

    Each decides for itself whether to duplicate or to leave, and settles it with its neighbours. Ctrl-C stops all
    of them; started again in the same folder, they go on where they were. Killing this command stops nothing. What
    stands after `--` is for the file, as with `elastream run`.

    Example: `elastream decentralized run examples/taxi_zones.py --locks ra1`
    """
    from elastream.decentralized.spark.launch import feeding, run_folder, start, stop
    from elastream.decentralized.spark.settings import RunSettings
    from elastream.decentralized.spark.transports import delete_topics
    from elastream.engines.spark.run import read_pipeline

    arguments = arguments_of_file(ctx)
    found = read_pipeline(file, arguments)
    where = run_folder(folder, found.pipeline.name)
    chosen = RunSettings(
        pipeline=file.absolute(),
        arguments=arguments,
        capacities={**found.capacities, **capacities_of(capacity)},
        policy=policy_of(settings),
        locks=locks,
        period_s=duration_of("--period", period),
        batch_interval_s=duration_of("--batch-interval", batch_interval),
        dead_after_s=duration_of("--dead-after", dead_after),
        seed=seed,
        control=control,
        data=data,
        kafka_servers=kafka_servers,
    )
    for_s = duration_of("--duration", duration)
    if fresh and where.path.exists():
        stop(where)
        for left in delete_topics(where):
            err.print(left, soft_wrap=True)
        shutil.rmtree(where.path)
    start(where, found, chosen)
    try:
        with feeding(where, found if generate else replace(found, generator=None)):
            _watch(where, for_s, quiet=as_json)
    finally:
        err.print("stopping after the batches under way")
        stop(where)
    _summarize(where, as_json=as_json)


@decentralized_app.command()
def status(
    folder: Annotated[Path, typer.Argument(help="The folder of a run.")], as_json: JsonOption = False
) -> None:
    """Show the instances of a run, under way or not, without disturbing it.

    Example: `elastream decentralized status out/taxi_zones-decentralized`
    """
    from elastream.decentralized.spark.folders import RunFolder
    from elastream.decentralized.spark.overview import look
    from elastream.decentralized.spark.settings import read_settings

    where = RunFolder(folder.absolute())
    read_settings(where)  # refuses a folder that is none
    views = look(where)
    if as_json:
        told = ("phase", "incarnation", "waits_for_locks", "pending")
        print_json([{"instance": view.address, **{name: getattr(view, name) for name in told}} for view in views])
    else:
        out.print(_table(views, {}))


@decentralized_app.command()
def stop(
    folder: Annotated[Path, typer.Argument(help="The folder of a run.")], as_json: JsonOption = False
) -> None:
    """Stop every instance of a run after its batch; nothing is lost.

    Example: `elastream decentralized stop out/taxi_zones-decentralized`
    """
    from elastream.decentralized.spark.folders import RunFolder
    from elastream.decentralized.spark.launch import living
    from elastream.decentralized.spark.launch import stop as stop_run
    from elastream.decentralized.spark.settings import read_settings

    where = RunFolder(folder.absolute())
    read_settings(where)
    stopped = living(where)
    stop_run(where)
    if as_json:
        print_json({"stopped": stopped})
    else:
        out.print(f"{len(stopped)} instances stopped")


def policy_of(written: list[str] | None) -> ScalingPolicy:
    known = [field.name for field in fields(ScalingPolicy)]
    given = pairs_of(written)
    for name in given:
        if name not in known:
            raise InvalidInput(f"--set {name}: no option of the policy{nearest(name, known)}")
    try:
        return TypeAdapter(ScalingPolicy).validate_python(given)
    except ValidationError as error:
        first = error.errors()[0]
        raise InvalidInput(f"--set {first['loc'][0]}: {first['msg']}, found {first['input']!r}") from None


def capacities_of(written: list[str] | None) -> dict[str, float]:
    found = {}
    for operator, number in pairs_of(written).items():
        try:
            found[operator] = float(number)
        except ValueError:
            raise InvalidInput(f"--capacity {operator}: expected records per second, found {number!r}") from None
    return found


def _watch(run: Any, for_s: float, *, quiet: bool) -> None:
    from elastream.decentralized.spark.overview import counts, look

    until_s = time.monotonic() + for_s
    before: Mapping[str, int] = {}
    told = time.time()
    arrived: dict[str, tuple[float, int]] = {}
    with _live(quiet) as show:
        while time.monotonic() < until_s:
            views = look(run)
            rates = {}
            for view in views:
                at_s, count = arrived.get(view.address, (time.monotonic(), view.arrived))
                rates[view.address] = (view.arrived - count) / max(_LOOK_S, time.monotonic() - at_s)
                arrived[view.address] = (time.monotonic(), view.arrived)
            show(_table(views, rates))
            now = counts(views)
            if now != before and not quiet and not out.is_terminal:
                out.print("  ".join(f"{operator} {count}" for operator, count in now.items()))
            before = now
            told = _tell_troubles(run, told, quiet=quiet)
            time.sleep(_LOOK_S)


def _tell_troubles(run: Any, since_s: float, *, quiet: bool) -> float:
    """What an instance was refused or failed at since then; the time of the last of it."""
    from elastream.decentralized.spark.events import all_events

    for event in all_events(run):
        if event["at_s"] > since_s and event["event"] in ("failed", "died", "refused", "dropped", "no broker"):
            since_s = event["at_s"]
            if not quiet:
                why = str(event.get("why", f"status {event.get('status')}")).split("\n", 1)[0]
                out.print(f"{event['instance']} {event['event']}: {why}", soft_wrap=True, markup=False)
    return since_s


@contextmanager
def _live(quiet: bool) -> Iterator[Any]:
    if quiet or not out.is_terminal:
        yield lambda _: None
        return
    with Live(console=out, refresh_per_second=2) as live:
        yield live.update


def _table(views: list[Any], rates: Mapping[str, float]) -> Table:
    table = Table("instance", "phase", "starts")
    for column in ("received/s", "to do"):
        table.add_column(column, justify="right")
    for view in views:
        rate = rates.get(view.address)
        shown = "" if rate is None else f"{rate:.0f}"
        phase = f"{view.phase}, waits for locks" if view.waits_for_locks else view.phase
        table.add_row(view.address, phase, str(view.incarnation), shown, f"{view.pending:,}")
    return table


def _summarize(run: Any, *, as_json: bool) -> None:
    from elastream.decentralized.spark.events import all_events
    from elastream.decentralized.spark.overview import counts, look

    told = ("phase", "kept", "waits", "dropped", "refused", "no broker", "died", "ended", "failed")
    events = [event for event in all_events(run) if event["event"] in told]
    final = counts(look(run))
    if as_json:
        print_json({"instances": final, "events": events, "folder": str(run.path)})
        return
    kept = {str(event["why"]) for event in events if event["event"] == "kept"}
    for why in sorted(kept):
        out.print(why)
    out.print(f"ended with {', '.join(f'{count} of {operator}' for operator, count in final.items())}")
    out.print(f"events of every instance: {run.path}/instances/*/*/events.jsonl", soft_wrap=True)


def capacity(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(help="A Python file with a Pipeline, such as examples/taxi_zones.py.")],
    operator: Annotated[str, typer.Argument(help="Whose capacity to measure.")],
    cores: Annotated[str, typer.Option(help="Cores of the instance, with commas: measured with each.")] = "1",
    first_rate: Annotated[float, typer.Option(help="Records per second to begin with.")] = 20.0,
    step: Annotated[str, typer.Option(help="How long each rate is held.")] = "10 s",
    batch_interval: Annotated[str, typer.Option(help="As in the run that it is for.")] = "2 s",
    as_json: JsonOption = False,
) -> None:
    """Measure what one instance of an operator can process: what those that scale themselves must know.

    The input rate is raised until the output no longer follows. What is processed then is the capacity. What
    stands after `--` is for the file, as with `elastream run`.

    Example: `elastream capacity examples/taxi_zones.py inZone --cores 1,2`
    """
    from elastream.decentralized.spark.capacity import CapacityOptions, measure_capacity
    from elastream.engines.spark.run import read_pipeline

    counts, found = core_counts(cores), read_pipeline(file, arguments_of_file(ctx))
    options = CapacityOptions(
        first_per_s=first_rate,
        step_s=duration_of("--step", step),
        batch_interval_s=duration_of("--batch-interval", batch_interval),
    )
    measured = []
    for count in counts:
        steps = []
        with waiting(err, "starting Spark", quiet=as_json) as waited:
            for result in measure_capacity(found, file.absolute(), operator, options, cores=count):
                steps.append(result)
                ending = "" if result.follows else ": no longer follows"
                offered, processed = (
                    f"{result.offered_per_s:.0f}/s offered",
                    f"{result.processed_per_s:.1f}/s processed",
                )
                err.print(f"{_with_cores(count)}: {offered}, {processed}{ending}")
                waited.say("measuring")
        measured.append(MeasuredCapacity(cores=count, steps=steps))
    if as_json:
        print_json(_as_plain(operator, measured))
    else:
        out.print(_capacities(operator, measured))


def _capacities(operator: str, measured: Sequence[MeasuredCapacity]) -> Table:
    table = Table(title=f"capacity of an instance of {operator}")
    for column in ("cores", "records/s", "records/s and core", "rates tried"):
        table.add_column(column, justify="right")
    for one in measured:
        each = one.per_s / one.cores
        table.add_row(str(one.cores), f"{one.per_s:.1f}", f"{each:.1f}", str(len(one.steps)))
    return table


def _as_plain(operator: str, measured: Sequence[MeasuredCapacity]) -> dict[str, Any]:
    return {
        "operator": operator,
        "capacities": {str(one.cores): one.per_s for one in measured},
        "steps": {str(one.cores): [asdict(step) for step in one.steps] for one in measured},
    }


def _with_cores(count: int) -> str:
    return f"{count} core" if count == 1 else f"{count} cores"
