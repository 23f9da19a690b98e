"""Offline advice: what a policy says of one window."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from elastream.measurement import Snapshot
from elastream.policies.catalog import Policy, Remembers, create
from elastream.policies.knowledge import NOTHING_KNOWN
from elastream.policies.proposal import Proposal


def evaluate(
    snapshot: Snapshot, policy: str | Policy = "ds2", options: Mapping[str, Any] | None = None
) -> Proposal:
    """How many instances each operator needs, and why.

    A policy may be given by its name; then `options` are its options, by name, as `--set` takes them:
    `evaluate(snapshot, "ds2", {"target_utilization": 0.8})`.
    """
    chosen = create(policy, options) if isinstance(policy, str) else policy
    known = chosen.remember(snapshot, NOTHING_KNOWN) if isinstance(chosen, Remembers) else NOTHING_KNOWN
    return chosen(snapshot, known)
