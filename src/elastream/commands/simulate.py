"""`elastream simulate` and `compare`: scenarios on the simulated engine."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from elastream.commands import console, plots
from elastream.commands.as_json import print_json, run_json
from elastream.commands.serve import PageOptions, Shown, serving, show_until_interrupted
from elastream.commands.settings import PolicyOptions, pairs_of, policy_and_knobs
from elastream.commands.shared import JsonOption, OutOption, SetOption, out, progress, writing_to
from elastream.commands.signature import from_options
from elastream.engines.simulated.pace import Pace
from elastream.engines.simulated.scenario import Scenario, read_scenario
from elastream.engines.simulated.simulation import Simulation, Watched, simulate, simulate_ideal
from elastream.errors import InvalidInput
from elastream.manager.events import event_to_json
from elastream.manager.knobs import Knobs
from elastream.measurement.recording import RecordingWriter, RunHeader, snapshot_line
from elastream.options import build
from elastream.policies.catalog import Policy, create

_IDEAL = "ideal"  # no policy: it knows what no policy can know


@from_options
def simulate_command(
    scenario: Annotated[Path, typer.Argument(help="A scenario in YAML: pipeline, capacities, load.")],
    policy: PolicyOptions,
    page: PageOptions,
    folder: OutOption = Path("out"),
    record: Annotated[Path | None, typer.Option(help="Also write a recording (JSON lines) there.")] = None,
    serve: Annotated[bool, typer.Option("--serve", help="Show it in the browser, as --speed says.")] = False,
    speed: Annotated[
        float, typer.Option(min=0.001, max=1e6, help="With --serve: simulated seconds in each real one.")
    ] = 60.0,
    as_json: JsonOption = False,
) -> None:
    """Run a scenario on the simulated engine: decisions, elasticity measures and a plot.

    No Spark, no waiting: an hour of a pipeline takes well under a second. See examples/wordcount.yaml. With
    --serve it runs at a pace that people can watch, does what they ask for, and is shown until Ctrl-C.
    """
    found = _scenario(scenario)
    chosen = policy.chosen(found)
    pace = Pace(speed)
    shown = Shown(
        pipeline=found.name,
        kind="simulation",
        engine="simulated",
        chosen=chosen,
        dataflow=found.model.dataflow,
    )
    with serving(shown, page.address(), pace.wake) if serve else nullcontext() as served:
        watched = None
        if served is not None:
            feed, inbox = served
            watched = Watched(pace=pace, inbox=inbox, on_snapshot=feed.snapshot, on_event=feed.event)
        file, title = folder / f"{scenario.stem}-{chosen.name}.png", f"{found.name} with {chosen.name} (simulated)"
        with writing_to(folder):
            run = _run(found, chosen.name, chosen.policy, chosen.knobs, quiet=as_json, watched=watched)
            plot = plots.plot_simulations({chosen.name: run}, file, title=title)
        if record is not None:
            _record(run, record, chosen.header(found.name, "simulated"))
        if as_json:
            print_json(
                {"scenario": found.name, "policy": chosen.name, **run_json(run), "plot": plot and str(plot)}
            )
        else:
            console.print_simulation(out, found.name, chosen.name, run)
            out.print(plots.told(plot) + (f", recording: {record}" if record else ""), soft_wrap=True)
        if served is not None:
            feed.end()
            show_until_interrupted()


def compare(
    scenario: Annotated[Path, typer.Argument(help="A scenario in YAML.")],
    policies: Annotated[
        str, typer.Option(help="Names with commas between them; `ideal` is what nobody can do better than.")
    ] = "ds2,dhalion,threshold,lag",
    rules: Annotated[Path | None, typer.Option("--rules", help="Rules to compare with them.")] = None,
    settings: SetOption = None,
    folder: OutOption = Path("out"),
    as_json: JsonOption = False,
) -> None:
    """Run a scenario with several policies and show them side by side.

    Each policy runs with the knobs of its authors unless the scenario or --set says otherwise.
    """
    found = _scenario(scenario)
    names = [name.strip() for name in policies.split(",") if name.strip()]
    given = pairs_of(settings)
    if rules is not None:
        names, given = list(dict.fromkeys([*names, "rules"])), {**given, "file": str(rules)}
    if not names:
        raise InvalidInput("--policies: name at least one policy")
    # all of them before the first run: a mistake in the last one is better found now
    known = [name for name in names if name != _IDEAL]
    chosen = {name: policy_and_knobs(name, given, found, beside=known) for name in known}
    file = folder / f"{scenario.stem}-compare.png"
    with writing_to(folder):
        runs = {
            name: _run(found, name, *chosen[name], quiet=as_json) if name in chosen else _ideal(found)
            for name in dict.fromkeys(names)
        }
        plot = plots.plot_simulations(runs, file, title=f"{found.name} (simulated)")
    if as_json:
        results = {name: run_json(run) for name, run in runs.items()}
        print_json({"scenario": found.name, "policies": results, "plot": plot and str(plot)})
        return
    out.rule(f"{found.name} (simulated)")
    console.print_elasticity(out, {name: run.elasticity for name, run in runs.items()})
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
    *,
    quiet: bool,
    watched: Watched | None = None,
) -> Simulation:
    with progress(f"{scenario.name}, {name}", quiet=quiet) as tell:
        return simulate(
            scenario.model,
            policy,
            knobs,
            duration_s=scenario.duration_s,
            on_progress=lambda at_s: tell("", at_s / scenario.duration_s),
            watched=watched,
        )


def _ideal(scenario: Scenario) -> Simulation:
    return simulate_ideal(scenario.model, duration_s=scenario.duration_s)


def _record(run: Simulation, path: Path, header: RunHeader) -> None:
    """Snapshots and events in the order in which they happened; an event follows the window it is about."""
    lines: list[tuple[float, Mapping[str, Any]]] = [(s.at_s, snapshot_line(s)) for s in run.snapshots]
    lines += [(event.at_s, event_to_json(event)) for event in run.events]
    with RecordingWriter(path, anew=True) as recording:
        recording.begin(header)
        for _, line in sorted(lines, key=lambda timed: timed[0]):
            recording.write(line)
