"""The reference of what `--set` takes: every policy with its options, and the manager's knobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from docs.hooks.markdown_text import code, sentence, table
from elastream.manager.knobs import Knobs
from elastream.options import OptionInfo, describe
from elastream.policies.catalog import PolicyInfo, catalog


def policies_text() -> str:
    entries = list(catalog().values())
    overview = table(
        ["policy", "what it does", "good for"],
        ([f"[`{e.name}`](#{e.name})", sentence(e.summary), sentence(e.good_for)] for e in entries),
    )
    return "\n\n".join([overview, *map(_policy, entries)])


def knobs_text() -> str:
    return _options(describe(Knobs))


def _policy(entry: PolicyInfo) -> str:
    parts = [f"### {entry.name}", sentence(entry.summary), f"Needs: {entry.needs}."]
    if entry.preset:
        parts.append(f"The name sets {_settings(entry.preset)}.")
    if entry.knobs:
        parts.append(f"Run as by its authors unless told otherwise: {_settings(entry.knobs)}.")
    return "\n\n".join([*parts, _options(describe(entry.options_class)) or "It has no options."])


def _settings(given: Mapping[str, Any]) -> str:
    return ", ".join(code(f"{name}={_shown(value)}") for name, value in given.items())


def _options(options: Iterable[OptionInfo]) -> str:
    rows = [[code(o.name), code(_shown(o.default)), o.unit, sentence(o.meaning)] for o in options]
    return table(["option", "default", "unit", "meaning"], rows) if rows else ""


def _shown(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)
