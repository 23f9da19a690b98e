"""`elastream report`: a recorded run as a page to read, keep and send."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any

import typer

from elastream.commands.as_json import accounts_json, print_json
from elastream.commands.recordings import RecordingArgument, name_of, recording_at
from elastream.commands.settings import pairs_of
from elastream.commands.shared import JsonOption, OutOption, SetOption, out, progress, writing_to
from elastream.errors import InvalidInput
from elastream.extras import require
from elastream.measurement.recording import read_recording
from elastream.report import figures
from elastream.report.learned_model import CannotSimulateError
from elastream.report.page import Contents, html, off_text, trust_text
from elastream.report.story import Story, summary, tell
from elastream.report.what_if import AGAINST, PolicyOutcome, WhatIf, check_names, check_settings, what_if


def report(
    recording: RecordingArgument,
    folder: OutOption = Path("out"),
    against: Annotated[
        str,
        typer.Option(metavar="NAMES", help="Policies to simulate on the same load, with commas; `none` for none."),
    ] = ", ".join(AGAINST),
    settings: SetOption = None,
    rules: Annotated[
        Path | None, typer.Option("--rules", help="The rules of the run, if it followed some.")
    ] = None,
    cost_per_instance_hour: Annotated[
        float | None, typer.Option(min=0, metavar="COST", help="What an instance costs in an hour.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write a report of a recorded run: one HTML file, and its pictures as PNG beside it.

    What happened, each decision and its effect, the elasticity measures, the cost, and what other policies would
    have done on the same load, simulated on a model that is learned from the recording. A run that goes on may be
    reported as well: it is what was there by then. --set tells how the run was set, where its recording does not.

    Example: `elastream report out/visits --against ds2,threshold`
    """
    require("report")
    path = recording_at(recording)
    names = [] if against.strip() == "none" else [name.strip() for name in against.split(",") if name.strip()]
    check_names(names)
    name = name_of(path)
    story = tell(read_recording(path, ignore_cut_off=True), pipeline=name)
    given: dict[str, Any] = pairs_of(settings)
    check_settings(given, story.policy)
    if rules is not None:
        given["file"] = str(rules)
    with writing_to(folder):
        found, why_not = _what_if(story, names, given, quiet=as_json)
        files = _write(story, found, why_not, folder / name, cost_per_instance_hour)
    if as_json:
        print_json(_as_json(story, found, why_not, files))
        return
    for sentence in summary(story):
        out.print(sentence)
    for note in (*story.losses, *story.notes):
        out.print(f"• {note}")
    out.print(f"• {trust_text(found)}" if found is not None else f"• Nothing was simulated: {why_not}.")
    out.print(f"report: {files[0]}", soft_wrap=True)


def _what_if(
    story: Story, names: list[str], settings: dict[str, Any], *, quiet: bool
) -> tuple[WhatIf | None, str]:
    try:
        with progress("simulating", quiet=quiet) as told:
            return what_if(story, against=names, settings=settings, on_progress=told), ""
    except (CannotSimulateError, InvalidInput) as error:  # the second: settings that this version does not know
        return None, str(error)


def _write(
    story: Story, found: WhatIf | None, why_not: str, stem: Path, cost_per_instance_hour: float | None
) -> tuple[Path, ...]:
    """The page first, then its pictures."""
    files = [stem.with_name(f"{stem.name}-report.html")]
    pictures: dict[str, str] = {}
    with figures.styled():
        drawn = {"run": figures.run_figure(story, None if found is None else found.demand)}
        if found is not None:
            drawn["what_if"] = figures.what_if_figure(story, found)
            drawn["check"] = figures.check_figure(story, found)
        for name, figure in drawn.items():
            pictures[name] = figures.as_svg(figure, name)
            files.append(stem.with_name(f"{stem.name}-report-{name.replace('_', '-')}.png"))
            figures.as_png(figure, files[-1])
    contents = Contents(
        story=story,
        found=found,
        why_no_model=why_not,
        figures=pictures,
        cost_per_instance_hour=cost_per_instance_hour,
    )
    files[0].write_text(html(contents), encoding="utf-8")
    return tuple(files)


def _as_json(story: Story, found: WhatIf | None, why_not: str, files: tuple[Path, ...]) -> dict[str, Any]:
    return {
        "pipeline": story.pipeline,
        "policy": story.policy,
        "summary": summary(story),
        "notes": story.notes,
        "losses": story.losses,
        "remarks": [dataclasses.asdict(remark) for remark in story.remarks],
        "duration_s": story.timeline.duration_s,
        "behind_s": story.behind_s,
        "accounts": accounts_json(story.accounts) if story.accounts else None,
        "cost": {**dataclasses.asdict(story.cost), "saved_share": story.cost.saved_share},
        "operators": [dataclasses.asdict(facts) for facts in story.operators],
        "decisions": [{"since_s": told.since_s, **told.view.model_dump(mode="json")} for told in story.decisions],
        "recorded": None if found is None else _outcome_json(found.recorded),
        "simulated": None if found is None else [_outcome_json(outcome) for outcome in found.others],
        "not_simulated": why_not if found is None else dict(found.failed),
        "check": None if found is None else _check_json(found),
        "files": [str(file) for file in files],
    }


def _outcome_json(outcome: PolicyOutcome) -> dict[str, Any]:
    return {
        "policy": outcome.name,
        "simulated": outcome.simulated,
        "instance_s": outcome.instance_s,
        "highest_waiting": outcome.highest_waiting,
        "last_waiting": outcome.last_waiting,
        "elasticity": dataclasses.asdict(outcome.elasticity),
    }


def _check_json(found: WhatIf) -> dict[str, Any]:
    check = found.check
    return {
        "trust": check.trust,
        "in_words": f"{trust_text(found)} {off_text(check)}",
        "cost_off": check.cost_off,
        "instances_off": check.instances_off,
        "waiting_off_s": check.waiting_off_s,
        "same_policy": None if check.repeated is None else _outcome_json(check.repeated),
    }
