"""`elastream evaluate`, `plan`, `replay` and `policies`: what a policy says of what was measured."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from elastream.commands import console
from elastream.commands.as_json import policy_json, print_json, proposal_json
from elastream.commands.recordings import RecordingArgument, recording_at
from elastream.commands.settings import PolicyOptions, pairs_of, rates_of
from elastream.commands.shared import JsonOption, PolicyOption, SetOption, err, out
from elastream.commands.signature import from_options
from elastream.durations import text
from elastream.manager.events import event_to_json
from elastream.manager.knobs import Knobs
from elastream.manager.replay import replay
from elastream.measurement.recording import Recording, read_recording
from elastream.measurement.snapshot_format import read_snapshot
from elastream.options import describe
from elastream.policies.catalog import catalog, create, info
from elastream.policies.evaluate import evaluate as advice_of
from elastream.policies.starting_plan import starting_plan


def evaluate(
    snapshot: Annotated[Path, typer.Argument(help="A snapshot in JSON: the graph, source rates and readings.")],
    policy: PolicyOption = "ds2",
    settings: SetOption = None,
    why: Annotated[bool, typer.Option("--why", help="Print every reason, not only the telling ones.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Given these measurements, how many instances does each operator need, and why?

    Offline advice from one window. The defaults are the paper's: target utilization 1.0, tolerance 0. For some
    room add `--set target_utilization=0.8`; to work off the backlog `--set catch_up_s=300`.

    Example: `elastream evaluate examples/snapshot.json --why`
    """
    chosen = create(policy, pairs_of(settings))
    found = read_snapshot(snapshot)
    proposal = advice_of(found, chosen)
    if as_json:
        missing = list(found.missing)
        print_json({**proposal_json(proposal), "complete": found.is_complete, "missing": missing})
        return
    console.print_proposal(out, found, proposal, every_reason=why)


def plan(
    recording: RecordingArgument,
    rate: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SOURCE=N", help="Records per second to plan for; repeatable. Else the highest seen."
        ),
    ] = None,
    policy: PolicyOption = "ds2-learned",
    settings: SetOption = None,
    ignore_cut_off: Annotated[
        bool, typer.Option("--ignore-cut-off", help="Leave out a last line that was cut off.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """The parallelism to start with, from what earlier runs measured, for a given source rate.

    Every recorded window is asked what it would take at that rate. The answer is the median; the lowest and the
    highest answer show how far it can be trusted.

    Example: `elastream plan out/visits --rate visits=1000`
    """
    windows = _recording(recording, ignore_cut_off=ignore_cut_off).snapshots
    found = starting_plan(windows, create(policy, pairs_of(settings)), rates_of(rate))
    if not as_json:
        console.print_starting_plan(out, found)
        return
    print_json(
        {
            "parallelism": {name: point.parallelism for name, point in found.operators.items()},
            "source_rates": found.source_rates,
            "operators": {name: dataclasses.asdict(point) for name, point in found.operators.items()},
            "unknown": found.unknown,
        }
    )


@from_options
def replay_command(
    recording: RecordingArgument,
    policy: PolicyOptions,
    ignore_cut_off: Annotated[
        bool, typer.Option("--ignore-cut-off", help="Leave out a last line that was cut off.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """What a policy and the manager would have decided in every window of a recording.

    Nothing is acted upon: each window is judged with the parallelism that it was recorded with. It is asked as
    often as the run was measured; the policy of the run is set as it was, another one as its authors have it.

    Example: `elastream replay out/visits --policy threshold`
    """
    found = _recording(recording, ignore_cut_off=ignore_cut_off)
    chosen = policy.chosen_for(found)
    events = replay(found.snapshots, chosen.policy, chosen.knobs)
    if as_json:
        print_json([event_to_json(event) for event in events])
    else:
        console.print_replay(out, f"{chosen.name}, every {text(chosen.knobs.interval_s)}", found.snapshots, events)


def _recording(path: Path, *, ignore_cut_off: bool) -> Recording:
    path = recording_at(path)
    found = read_recording(path, ignore_cut_off=ignore_cut_off)
    if found.out_of_order:
        left_out = console.counted(found.out_of_order, "window")
        err.print(f"{path}: {left_out} left out, for ending no later than one before (at_s)", soft_wrap=True)
    return found


def policies(
    name: Annotated[str | None, typer.Argument(help="Show the options of this policy.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List each policy with what it needs and what it is good for; with a name, its options and the knobs.

    Example: `elastream policies ds2`
    """
    found = [info(name)] if name is not None else list(catalog().values())
    if as_json:
        print_json([policy_json(entry) for entry in found])
    elif name is None:
        console.print_policies(out, found)
    else:
        console.print_policy(out, found[0])
        console.print_options(out, "knobs of the manager (--set NAME=VALUE)", describe(Knobs))
