"""Where the instances that a policy asks for should run: advice with nodes, where the engine knows of nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from elastream.measurement import Snapshot
from elastream.nodes.choice import NodeChoice
from elastream.nodes.places import fed_from
from elastream.nodes.site import Placed, Site
from elastream.policies.advice import because, bounded
from elastream.policies.proposal import Advice, ReasonKind


def site_of(snapshot: Snapshot, name: str, choice: NodeChoice, advised: Mapping[str, Advice]) -> Site:
    """The operator's nodes; what other operators have, or were advised to take, is not free for it.

    Nor is what they were advised to give back: they have it until the action is over.
    """
    placed = {**snapshot.placement, **{other: one.nodes for other, one in advised.items() if one.nodes}}
    taken = [node for other, nodes in snapshot.placement.items() if other != name for node in nodes]
    for other, advice in advised.items():
        taken += (advice.nodes or ())[len(snapshot.placement.get(other, ())) :]
    return Site(
        operator=name,
        pool=snapshot.nodes if name in snapshot.placement else None,
        own=snapshot.placement.get(name, ()),
        taken=tuple(taken),
        fed_from=fed_from(snapshot.dataflow, placed, name),
        instances=snapshot.plan[name],
        choice=choice,
    )


def placed_advice(
    snapshot: Snapshot, advice: Advice, site: Site, wanted: int, placed: Placed | None = None
) -> Advice:
    """The advice to have so many instances, with their nodes: as many as bounds and free nodes allow."""
    advice = bounded(snapshot.dataflow[advice.operator], advice, wanted)
    count = advice.current if advice.parallelism is None else advice.parallelism
    if count == advice.current:
        return advice
    if placed is None or placed.instances != count:
        placed = site.resized(count)
    advice = replace(advice, parallelism=placed.instances)
    if placed.instances < count and count > advice.current:
        text = f"{count:,} wanted, but no node is left for more than {placed.instances:,}"
        advice = because(advice, ReasonKind.CLAMPED, text)
    if placed.nodes is None or placed.instances == advice.current:
        return advice
    return because(replace(advice, nodes=placed.nodes), ReasonKind.NODES, _nodes_text(site, placed))


def _nodes_text(site: Site, placed: Placed) -> str:
    nodes = placed.nodes or ()
    if len(nodes) > len(site.own):
        moved = f"{', '.join(nodes[len(site.own) :])} to join"
    else:
        left = list(site.own)
        for name in nodes:
            left.remove(name)
        moved = f"{', '.join(left)} to leave"
    before_ms, after_ms = 1000 * site.now.delay_s, 1000 * placed.delay_s
    return f"{moved}: the largest delay goes from {before_ms:.0f} to {after_ms:.0f} ms"
