"""Whether the manager decides, and if not why, in one line: for the terminal, the page and Prometheus alike."""

from __future__ import annotations

from elastream.manager.events import Ignored, Proposed

DECIDING = "deciding"
_NOT = "not deciding: "


def deciding_text(event: Proposed | Ignored) -> str:
    """What a window led to: a proposal, for all operators or for some, or nothing."""
    if isinstance(event, Ignored):
        return f"{_NOT}{event.why}"
    undecided = [
        f"{advice.operator} ({advice.reasons[-1] if advice.reasons else 'no data'})"
        for advice in event.proposal.advice.values()
        if advice.parallelism is None
    ]
    return f"{DECIDING}, but not for {', '.join(undecided)}" if undecided else DECIDING


def is_deciding(text: str) -> bool:
    return not text.startswith(_NOT)
