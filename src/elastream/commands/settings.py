"""What users write on the command line, `--set NAME=VALUE` and the like, made into a policy and knobs."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, ClassVar

from elastream.commands.shared import CalendarOption, PolicyOption, RulesOption, SetOption
from elastream.dataflow import Dataflow
from elastream.durations import seconds
from elastream.engines.simulated.scenario import Scenario
from elastream.errors import InvalidInput, nearest
from elastream.manager.knobs import Knobs
from elastream.manager.run import header_of
from elastream.measurement.recording import Recording, RunHeader
from elastream.options import build, describe
from elastream.policies.by_rules import Rules
from elastream.policies.catalog import Policy, create, info
from elastream.policies.whole_jobs import ONLY_WHOLE_JOBS

DEFAULT_POLICY, RULES = "ds2", "rules"


@dataclass(frozen=True, kw_only=True)
class PolicyOptions:
    """Which policy a command asks, and with which settings."""

    PANEL: ClassVar = "Policy"

    policy: PolicyOption = DEFAULT_POLICY
    rules: RulesOption = None
    calendar: CalendarOption = None
    settings: SetOption = None

    def chosen(
        self,
        scenario: Scenario | None = None,
        *,
        dataflow: Dataflow | None = None,
        given: Mapping[str, Any] | None = None,
    ) -> ChosenPolicy:
        """What --rules is short for put in place; `given` are the settings, where they are not those of --set."""
        written = dict(pairs_of(self.settings) if given is None else given)
        if self.calendar is not None:
            written["calendar"] = str(self.calendar)
        name, settings = with_rules(self.policy, self.rules, written)
        if info(name).whole_jobs:
            raise InvalidInput(f"--policy {name}: {ONLY_WHOLE_JOBS}")
        policy, knobs = policy_and_knobs(name, settings, scenario, dataflow=dataflow)
        return ChosenPolicy(name=name, policy=policy, knobs=knobs)

    def chosen_for(self, recording: Recording) -> ChosenPolicy:
        """As the run was set, where --set says nothing else."""
        name, _ = with_rules(self.policy, self.rules, {})
        known = {*_names(info(name).options_class), *_names(Knobs)}
        given = _layered(known, _as_recorded(recording, name), pairs_of(self.settings))
        return self.chosen(dataflow=recording.snapshots[-1].dataflow, given=given)


@dataclass(frozen=True, kw_only=True)
class ChosenPolicy:
    name: str
    policy: Policy
    knobs: Knobs

    def header(self, pipeline: str, engine: str) -> RunHeader:
        return header_of(pipeline, engine, self.name, self.policy, self.knobs)


def duration(option: str, written: str) -> float:
    try:
        return seconds(float(written) if written.replace(".", "", 1).isdigit() else written)
    except ValueError as error:
        raise InvalidInput(f"{option}: {error}") from None


def _as_recorded(recording: Recording, policy: str) -> dict[str, Any]:
    """The interval of the run, and if this was its policy, all else that was set; another one keeps its own."""
    header = recording.headers[-1] if recording.headers else RunHeader()
    measured_s = median(snapshot.window_s for snapshot in recording.snapshots) or Knobs.interval_s
    said = {"interval_s": header.knobs.get("interval_s", measured_s)}
    if header.policy == policy:
        said |= {**header.knobs, **header.options}
    # which files are to be read is for the user to say, not for a recording
    return {name: value for name, value in said.items() if name not in ("file", "calendar", "dry_run")}


def with_rules(policy: str, rules: Path | None, settings: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """What --rules is short for: the name of the policy and its settings."""
    if rules is None:
        return policy, dict(settings)
    if policy not in (DEFAULT_POLICY, RULES):
        raise InvalidInput(f"--rules is for the policy {RULES}, found --policy {policy}")
    return RULES, {**settings, "file": str(rules)}


def policy_and_knobs(
    policy: str,
    settings: Mapping[str, Any],
    scenario: Scenario | None = None,
    *,
    dataflow: Dataflow | None = None,
    beside: Sequence[str] = (),
) -> tuple[Policy, Knobs]:
    """What --set names may be an option of the policy or a knob of the manager.

    An option that only a policy `beside` this one has is passed over. What rules name is looked up in the graph.
    """
    entry = info(policy)
    of_policy, of_manager = _names(entry.options_class), _names(Knobs)
    of_others = {option for other in beside for option in _names(info(other).options_class)}
    for_policy, for_manager = {}, {}
    for name, value in settings.items():
        if _meant(name, of_policy) in of_policy:
            for_policy[name] = value
        elif _meant(name, of_manager) in of_manager:
            for_manager[name] = value
        elif _meant(name, of_others) not in of_others:
            known = {*of_policy, *of_manager}
            raise InvalidInput(f"--set {name}: no option of {policy} and no knob{nearest(name, known)}")
    options = _layered(of_policy, scenario.policies.get(policy, {}) if scenario else {}, for_policy)
    knobs = _layered(of_manager, entry.knobs, scenario.manager if scenario else {}, for_manager)
    created = create(policy, options)
    if isinstance(created, Rules):
        created = _for_pipeline(created, scenario.model.dataflow if scenario else dataflow)
    return created, build(Knobs, knobs, place="manager")


def settings_for(options_class: type[Any], settings: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Those of --set that are options of this class, and the others."""
    known = _names(options_class)
    of_class = {name: value for name, value in settings.items() if _meant(name, known) in known}
    return of_class, {name: value for name, value in settings.items() if name not in of_class}


def _for_pipeline(rules: Rules, dataflow: Dataflow | None) -> Rules:
    if not rules.file:
        raise InvalidInput(f"the policy {RULES} needs a file with rules: --rules FILE")
    return rules if dataflow is None else rules.for_pipeline(dataflow)


def _names(options_class: type[Any]) -> tuple[str, ...]:
    return tuple(option.name for option in describe(options_class))


def _meant(name: str, known: Container[str]) -> str:
    """An option in seconds may be written without its `_s`."""
    return f"{name}_s" if f"{name}_s" in known else name


def _layered(known: Container[str], *layers: Mapping[str, Any]) -> dict[str, Any]:
    """The options of all layers; of one that several give the last counts, however each of them spells it."""
    merged: dict[str, Any] = {}
    for layer in layers:
        given = {_meant(name, known) for name in layer}
        merged = {name: value for name, value in merged.items() if _meant(name, known) not in given} | dict(layer)
    return merged


def pairs_of(pairs: Iterable[str] | None) -> dict[str, str]:
    found = {}
    for pair in pairs or ():
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise InvalidInput(f"--set takes NAME=VALUE, found {pair!r}")
        found[name.strip().replace("-", "_")] = value.strip()
    return found


def rates_of(pairs: Iterable[str] | None) -> dict[str, float]:
    found = {}
    for pair in pairs or ():
        source, _, value = pair.rpartition("=")
        try:
            found[source] = float(value)
        except ValueError:
            raise InvalidInput(f"--rate takes SOURCE=N, found {pair!r}") from None
        if not source:
            raise InvalidInput(f"--rate takes SOURCE=N, found {pair!r}")
    return found
