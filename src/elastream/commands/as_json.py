"""What `--json` prints: the same values that the tables show."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import Any

from elastream.commands import console
from elastream.engines.simulated.simulation import Simulation
from elastream.manager.events import TELLING, event_to_json
from elastream.measurement.accounts import Accounts
from elastream.policies.catalog import PolicyInfo
from elastream.policies.proposal import Proposal


def proposal_json(proposal: Proposal) -> dict[str, Any]:
    operators = {}
    for name, advice in proposal.advice.items():
        fields = dataclasses.asdict(advice)
        fields.pop("operator")
        operators[name] = fields
    return {
        "policy": proposal.policy,
        "parallelism": dict(proposal.parallelism),
        "operators": operators,
        "reasons": [dataclasses.asdict(reason) for reason in proposal.reasons],
        "expected_share": proposal.expected_share,
        "workers": proposal.workers,
    }


def run_json(run: Simulation) -> dict[str, Any]:
    return {
        "duration_s": run.duration_s,
        "actions": run.actions,
        "final_parallelism": dict(run.final_plan),
        "elasticity": dataclasses.asdict(run.elasticity),
        "events": [event_to_json(event) for event in run.events if event.event in TELLING],
    }


def accounts_json(accounts: Accounts) -> dict[str, Any]:
    """Where every record went, and what does not add up."""
    steps = {
        step.operator: {
            "in": step.records_in,
            "out": step.records_out,
            "late": step.late,
            "late_in_this_run": None if step.late is None else step.late_now,
            "aside": step.aside,
            "waiting": step.waiting,
            "adds_up": not step.differences,
            "inputs": {
                one.producer: {"published": one.published, "read": one.read, "waiting": one.waiting}
                for one in step.inputs
            },
        }
        for step in accounts.steps
    }
    return {"records": steps, "differences": accounts.differences, "warnings": accounts.warnings}


def policy_json(entry: PolicyInfo) -> dict[str, Any]:
    return {
        "name": entry.name,
        "origin": entry.origin,
        "summary": entry.summary,
        "needs": entry.needs,
        "good_for": entry.good_for,
        "whole_jobs": entry.whole_jobs,
        "knobs": dict(entry.knobs),
        "options": [dataclasses.asdict(option) for option in console.policy_options(entry)],
    }


def print_json(value: Any) -> None:
    print(json.dumps(_plain(value), indent=1, allow_nan=False))


def _plain(value: Any) -> Any:
    """What JSON can hold; it has no word for a number that is not finite, so that becomes null."""
    match value:
        case Mapping():
            return {str(key): _plain(item) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
        case float():
            return value if math.isfinite(value) else None
        case None | bool() | int() | str():
            return value
        case _:
            return str(value)
