"""The reference of the Python API: the names that a user's code may need, as mkdocstrings is to show them.

They are imported here, so that one that is renamed or moved fails at once. What `elastream` itself offers stands
first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import elastream
from elastream.dataflow import Dataflow, Operator, Plan
from elastream.engines.spark.pipeline import Pipeline
from elastream.errors import ElastreamError, InvalidInput
from elastream.manager.decision import Decision
from elastream.manager.engine import Engine, RescaleOutcome
from elastream.manager.knobs import Knobs
from elastream.measurement import Reading, Snapshot
from elastream.measurement.recording import read_recording
from elastream.measurement.snapshot_format import read_snapshot
from elastream.options import option
from elastream.policies.catalog import Policy, Remembers, catalog, create, policy
from elastream.policies.proposal import Advice, Proposal, Reason

SECTIONS: Mapping[str, Sequence[Any]] = {
    "Pipelines": (Pipeline,),
    "What was measured": (read_snapshot, read_recording, Snapshot, Reading),
    "What it calls for": (catalog, create, Proposal, Advice, Reason),
    "Writing a policy": (policy, option, Policy, Remembers),
    "Writing an engine": (Engine, Decision, RescaleOutcome, Dataflow, Operator, Plan),
    "The manager": (Knobs,),
    "Errors": (ElastreamError, InvalidInput),
}


def python_text() -> str:
    parts = []
    for section, names in _sections():
        parts.append(f"## {section}")
        parts += [f"::: {name}" for name in names]
    return "\n\n".join(parts)


def _sections() -> Iterator[tuple[str, list[str]]]:
    exported = [f"elastream.{name}" for name in getattr(elastream, "__all__", ()) if not name.startswith("__")]
    shown = {id(getattr(elastream, name.rpartition(".")[2])) for name in exported}
    if exported:
        yield "from elastream import ...", exported
    for section, found in SECTIONS.items():
        if names := [f"{thing.__module__}.{thing.__qualname__}" for thing in found if id(thing) not in shown]:
            yield section, names
