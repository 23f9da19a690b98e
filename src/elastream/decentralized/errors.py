"""What a state machine refuses. The state that was handed in is still the right one afterwards."""

from __future__ import annotations

from elastream.errors import ElastreamError


class IllegalEvent(ElastreamError):  # noqa: N818 - reads better where it is raised
    """An event that cannot happen in this state; nothing was changed and nothing is sent."""
