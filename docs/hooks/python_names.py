"""The reference of the Python API: the names that `elastream` offers, by what they are for.

A test sees to it that these are all of them, and no others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

SECTIONS: Mapping[str, Sequence[str]] = {
    "Pipelines": ("Pipeline", "run"),
    "Jobs of others": ("attach",),
    "What was measured, and what it calls for": (
        "read_snapshot",
        "Snapshot",
        "Measurement",
        "Reading",
        "evaluate",
    ),
    "Writing a policy": ("policy", "option", "Policy", "Knowledge", "Proposal", "Advice", "Reason", "ReasonKind"),
    "Writing an engine": ("Engine", "EngineKind", "Job", "Clock", "Decision", "RescaleOutcome"),
    "What runs": ("Dataflow", "Operator", "Plan"),
    "Errors": ("ElastreamError", "InvalidInput", "EngineFailed"),
}


def python_text() -> str:
    parts = []
    for section, names in SECTIONS.items():
        parts.append(f"## {section}")
        parts += [f"::: elastream.{name}" for name in names]
    return "\n\n".join(parts)
