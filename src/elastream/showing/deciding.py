"""Whether the manager decides, and if not why, and what the numbers of a window do not say of themselves: for the
terminal, the page and Prometheus alike."""

from __future__ import annotations

from collections.abc import Mapping

from elastream.manager.events import Ignored, Proposed
from elastream.policies.proposal import Proposal, ReasonKind
from elastream.texts import listed_text

DECIDING = "deciding"
_NOT = "not deciding: "
_IN_THE_ROW = (ReasonKind.MEASURED, ReasonKind.FORMULA)


def deciding_text(event: Proposed | Ignored) -> str:
    """What a window led to, in one line: a proposal, for all operators or for some, or nothing."""
    if isinstance(event, Ignored):
        return f"{_NOT}{event.why}"
    undecided: dict[str, list[str]] = {}
    for advice in event.proposal.advice.values():
        if advice.parallelism is None:
            why = str(advice.reasons[-1]) if advice.reasons else "no data"
            undecided.setdefault(why, []).append(advice.operator)
    if not undecided:
        return DECIDING
    told = "; ".join(f"{listed_text(names)} ({why})" for why, names in undecided.items())
    nobody = len(event.proposal.advice) == sum(map(len, undecided.values()))
    return f"{_NOT}{told}" if nobody else f"{DECIDING}, but not for {told}"


def is_deciding(text: str) -> bool:
    return not text.startswith(_NOT)


def explanations(proposal: Proposal) -> Mapping[tuple[str, ReasonKind], str]:
    """Why what is asked for is not what the rates alone would give: of the pipeline, under the name "", and of
    each operator that is decided. What a row of the table says is left out."""
    found: dict[tuple[str, ReasonKind], str] = {}
    for reason in proposal.reasons:
        before = found.get(("", reason.kind))
        found["", reason.kind] = reason.text if before is None else f"{before}; {reason.text}"
    for advice in proposal.advice.values():
        for reason in advice.reasons if advice.parallelism is not None else ():
            if reason.kind not in _IN_THE_ROW:
                found[advice.operator, reason.kind] = f"{advice.operator}: {reason.text}"
    return found
