"""State diagrams from the transition tables of the code: `python -m docs.hooks.diagrams` writes them to the pages.

The files of the pages hold them, so that they are seen wherever Markdown is; a test compares them with the tables.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from elastream.decentralized.protocol import instance
from elastream.manager import phase

DOCS = Path(__file__).parents[1]

State = TypeVar("State", bound=StrEnum)
Trigger = TypeVar("Trigger", bound=StrEnum)


def state_diagram(
    table: Mapping[tuple[State, Trigger], State], start: State, *, apart: Collection[Trigger] = ()
) -> str:
    """A table of transitions as Mermaid. `apart` are triggers that lead from almost everywhere to one place: they,
    and what changes nothing, are sentences below it, so that the lines can still be followed."""
    lines: dict[tuple[State, State], list[str]] = {}
    for (before, trigger), after in table.items():
        if before is not after and trigger not in apart:
            lines.setdefault((before, after), []).append(str(trigger))
    states = dict.fromkeys([start, *(state for (before, _), after in table.items() for state in (before, after))])
    named = [f'    state "{state}" as {_id(state)}' for state in states if _id(state) != state]
    drawn = [f"    {_id(before)} --> {_id(after)}: {', '.join(on)}" for (before, after), on in lines.items()]
    mermaid = ["```mermaid", "stateDiagram-v2", *named, f"    [*] --> {_id(start)}", *drawn, "```"]
    return "\n".join([*mermaid, *_sentences(table, apart)])


def _sentences(table: Mapping[tuple[State, Trigger], State], apart: Collection[Trigger]) -> list[str]:
    told = []
    for trigger in apart:
        targets: dict[State, list[State]] = {}
        for (before, on), after in table.items():
            if on is trigger and before is not after:
                targets.setdefault(after, []).append(before)
        told += [f"- *{trigger}* leads to *{after}* from {_listed(before)}." for after, before in targets.items()]
    staying: dict[State, list[Trigger]] = {}
    for (before, trigger), after in table.items():
        if before is after:
            staying.setdefault(before, []).append(trigger)
    told += [f"- *{state}* stays on {_listed(triggers)}." for state, triggers in staying.items()]
    return ["", *told] if told else []


def _listed(words: Collection[StrEnum]) -> str:
    *most, last = (f"*{word}*" for word in words)
    return f"{', '.join(most)} and {last}" if most else last


def _id(state: StrEnum) -> str:
    return state.replace(" ", "_")


DIAGRAMS: Mapping[str, tuple[str, Callable[[], str]]] = {
    "manager phases": (
        "manager.md",
        lambda: state_diagram(
            phase.TRANSITIONS,
            phase.ManagerPhase.WARMING_UP,
            apart=(phase.PhaseTrigger.ASKED_FOR, phase.PhaseTrigger.STARTED),
        ),
    ),
    "decentralized instance": (
        "decentralized/protocol.md",
        lambda: state_diagram(instance.TRANSITIONS, instance.InstancePhase.WAITING),
    ),
}
"""By name: the page that each stands in, and how it is drawn."""


def with_diagrams(name: str, text: str) -> str:
    """The text of a page with each of its diagrams as it is now."""
    for diagram, (page, draw) in DIAGRAMS.items():
        if page == name:
            text = _replaced(text, diagram, draw())
    return text


def _replaced(text: str, diagram: str, drawn: str) -> str:
    begin, end = f"<!-- diagram: {diagram} -->\n", "\n<!-- end of the diagram -->"
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not (found and closed):
        raise ValueError(f"the page has no place for the diagram {diagram!r}: {begin.strip()} ... {end.strip()}")
    return f"{before}{begin}{drawn}{end}{after}"


def main() -> None:
    for page in sorted({page for page, _ in DIAGRAMS.values()}):
        path = DOCS / page
        path.write_text(with_diagrams(page, path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
