"""`elastream simulate` and `compare`: scenarios on the simulated engine."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from elastream.commands import console, plots
from elastream.commands.as_json import print_json, run_json
from elastream.commands.serve import PageOptions, Shown, serving, show_until_interrupted
from elastream.commands.settings import PolicyOptions, pairs_of, policy_and_knobs
from elastream.commands.shared import JsonOption, OutOption, SetOption, out, progress, writing_to
from elastream.commands.signature import from_options
from elastream.engines.simulated.pace import PlaySpeed
from elastream.engines.simulated.scenario import Scenario, read_scenario
from elastream.engines.simulated.simulation import Simulation, Watched, simulate, simulate_ideal
from elastream.errors import InvalidInput
from elastream.manager.events import Event, event_to_json
from elastream.manager.knobs import Knobs
from elastream.measurement import Snapshot
from elastream.measurement.recording import RecordingWriter
from elastream.measurement.steady_recording import SteadyRecording
from elastream.options import build
from elastream.policies.catalog import Policy, create, info
from elastream.policies.whole_jobs import ONLY_WHOLE_JOBS

if TYPE_CHECKING:
    from elastream.web.feed import Feed

_IDEAL = "ideal"  # no policy: it knows what no policy can know


@dataclass(frozen=True, kw_only=True)
class _Told:
    """Who is told of a simulation while it runs."""

    feed: Feed | None = None
    recording: RecordingWriter | SteadyRecording | None = None

    def snapshot(self, snapshot: Snapshot) -> None:
        if self.recording is not None:
            self.recording.snapshot(snapshot)
        if self.feed is not None:
            self.feed.snapshot(snapshot)

    def event(self, event: Event) -> None:
        if self.recording is not None:
            self.recording.write(event_to_json(event))
        if self.feed is not None:
            self.feed.event(event)


@from_options
def simulate_command(
    scenario: Annotated[Path, typer.Argument(help="A scenario in YAML: pipeline, capacities, load.")],
    policy: PolicyOptions,
    page: PageOptions,
    folder: OutOption = Path("out"),
    record: Annotated[Path | None, typer.Option(help="Also write a recording (JSON lines) there.")] = None,
    serve: Annotated[bool, typer.Option("--serve", help="Show it in the browser, as --speed says.")] = False,
    speed: Annotated[
        float,
        typer.Option(
            min=0.001, max=1e6, metavar="TIMES", help="With --serve: simulated seconds in each real one."
        ),
    ] = 60.0,
    as_json: JsonOption = False,
) -> None:
    """Run a scenario on the simulated engine: decisions, elasticity measures and a plot.

    No Spark, no waiting: an hour of a pipeline takes well under a second. See examples/wordcount.yaml. With
    --serve it runs at a pace that people can watch, does what they ask for, and is shown until Ctrl-C.

    Example: `elastream simulate examples/wordcount.yaml --policy threshold`
    """
    found = _scenario(scenario)
    chosen = policy.chosen(found)
    pace = PlaySpeed(speed)
    shown = Shown(
        pipeline=found.name,
        kind="simulation",
        engine="simulated",
        chosen=chosen,
        dataflow=found.model.dataflow,
    )
    with (
        serving(shown, page.address(), pace.wake) if serve else nullcontext() as served,
        nullcontext() if record is None else _recording(record, shown_meanwhile=serve) as recording,
    ):
        if recording is not None:
            recording.begin(chosen.header(found.name, "simulated"))
        told = _Told(feed=None if served is None else served[0], recording=recording)
        watched = None if served is None else Watched(pace=pace, inbox=served[1])
        file, title = folder / f"{scenario.stem}-{chosen.name}.png", f"{found.name} with {chosen.name} (simulated)"
        with writing_to(folder):
            run = _run(found, chosen.name, chosen.policy, chosen.knobs, told, quiet=as_json, watched=watched)
            plot = plots.plot_simulations({chosen.name: run}, file, title=title)
        if as_json:
            print_json(
                {"scenario": found.name, "policy": chosen.name, **run_json(run), "plot": plot and str(plot)}
            )
        else:
            console.print_simulation(out, found.name, chosen.name, run)
            out.print(plots.told(plot) + (f", recording: {record}" if record else ""), soft_wrap=True)
        if served is not None:
            served[0].end()
            show_until_interrupted()


def compare(
    scenario: Annotated[Path, typer.Argument(help="A scenario in YAML.")],
    policies: Annotated[
        str, typer.Option(help="Names with commas between them; `ideal` is what nobody can do better than.")
    ] = "ds2,flink,dhalion,threshold,lag",
    rules: Annotated[Path | None, typer.Option("--rules", help="Rules to compare with them.")] = None,
    settings: SetOption = None,
    folder: OutOption = Path("out"),
    as_json: JsonOption = False,
) -> None:
    """Run a scenario with several policies and show them side by side.

    Each policy runs with the knobs of its authors unless the scenario or --set says otherwise.

    Example: `elastream compare examples/wordcount.yaml --policies ds2,threshold`
    """
    found = _scenario(scenario)
    names = [name.strip() for name in policies.split(",") if name.strip()]
    given = pairs_of(settings)
    if rules is not None:
        names, given = list(dict.fromkeys([*names, "rules"])), {**given, "file": str(rules)}
    if not names:
        raise InvalidInput("--policies: name at least one policy")
    # all of them before the first run: a mistake in the last one is better found now
    known = [name for name in names if name != _IDEAL and not info(name).whole_jobs]
    left_out = {name: ONLY_WHOLE_JOBS for name in names if name not in (_IDEAL, *known)}
    names = [name for name in names if name not in left_out]
    chosen = {name: policy_and_knobs(name, given, found, beside=known) for name in known}
    file = folder / f"{scenario.stem}-compare.png"
    with writing_to(folder):
        runs = {
            name: _run(found, name, *chosen[name], _Told(), quiet=as_json) if name in chosen else _ideal(found)
            for name in dict.fromkeys(names)
        }
        plot = plots.plot_simulations(runs, file, title=f"{found.name} (simulated)")
    if as_json:
        results = {name: run_json(run) for name, run in runs.items()}
        print_json({"scenario": found.name, "policies": results, "left_out": left_out, "plot": plot and str(plot)})
        return
    out.rule(f"{found.name} (simulated)")
    console.print_elasticity(out, {name: run.elasticity for name, run in runs.items()})
    for name, why in left_out.items():
        out.print(f"{name} is left out: it is {why}", soft_wrap=True)
    out.print(plots.told(plot), soft_wrap=True)


def _scenario(path: Path) -> Scenario:
    """Read a scenario; what it says of the manager and of policies is checked even where it is not used."""
    found = read_scenario(path)
    try:
        build(Knobs, found.manager, place="manager")
        for name, options in found.policies.items():
            create(name, options)
    except InvalidInput as error:
        raise error.at(str(path)) from None
    return found


def _run(
    scenario: Scenario,
    name: str,
    policy: Policy,
    knobs: Knobs,
    told: _Told,
    *,
    quiet: bool,
    watched: Watched | None = None,
) -> Simulation:
    with progress(f"{scenario.name}, {name}", quiet=quiet) as tell:

        def measured(snapshot: Snapshot) -> None:
            told.snapshot(snapshot)
            tell("", snapshot.at_s / scenario.duration_s)

        return simulate(
            scenario.model,
            policy,
            knobs,
            duration_s=scenario.duration_s,
            on_snapshot=measured,
            on_event=told.event,
            watched=watched,
        )


def _recording(path: Path, *, shown_meanwhile: bool) -> RecordingWriter | SteadyRecording:
    """Written as it goes. One that fails ends what takes seconds, and not what people look at and act upon."""
    return SteadyRecording(path, anew=True) if shown_meanwhile else RecordingWriter(path, anew=True)


def _ideal(scenario: Scenario) -> Simulation:
    return simulate_ideal(scenario.model, duration_s=scenario.duration_s)
