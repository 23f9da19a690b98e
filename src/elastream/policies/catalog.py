"""The policies there are: those of this package, where adding one is adding one file, and those of others.

A policy is a frozen dataclass: its fields are its options, and calling it with a snapshot and what was learned
so far gives a proposal. It keeps nothing between calls. The decorator below describes it for the catalog; another
package names it as an entry point of the group `elastream.policies` besides.

A policy that looks at more than one window has `remember`: what it keeps is part of the knowledge that it is
handed, and so of the manager's state, which survives a restart. One that may change while it runs has `renewed`.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, is_dataclass, replace
from typing import Any, Protocol, TypeVar, cast, runtime_checkable

import elastream.policies
from elastream.errors import InvalidInput
from elastream.measurement import Snapshot
from elastream.options import build
from elastream.plugins import Registry, check_class
from elastream.policies.knowledge import NOTHING_KNOWN, Knowledge
from elastream.policies.proposal import Proposal


class Policy(Protocol):
    """From one window, and what was learned before it, to the parallelism of each operator, with reasons."""

    def __call__(self, snapshot: Snapshot, knowledge: Knowledge = NOTHING_KNOWN) -> Proposal: ...


@runtime_checkable
class Remembers(Protocol):
    def remember(self, snapshot: Snapshot, knowledge: Knowledge) -> Knowledge:
        """The knowledge with what this policy keeps of one more window; called before the policy is asked."""


@dataclass(frozen=True, kw_only=True)
class Renewal:
    """A policy that has changed, or one that stays as it was because the change was refused."""

    policy: Policy
    what: str
    refused: bool = False


@runtime_checkable
class Renews(Protocol):
    def renewed(self) -> Renewal | None:
        """Look whether what it was read from has changed. Only the loop calls this; None means no news."""


@dataclass(frozen=True, kw_only=True)
class PolicyInfo:
    name: str
    summary: str
    needs: str
    """Which measurements it cannot do without."""
    good_for: str
    options_class: type[Any]
    preset: Mapping[str, Any] = field(default_factory=dict)
    """Options that this name sets."""
    knobs: Mapping[str, Any] = field(default_factory=dict)
    """How its authors run it: the manager's knobs, where they differ from the manager's own defaults."""
    whole_jobs: bool = False
    """It decides the number of executors of a whole job, and has no opinion on the operators of a pipeline."""
    origin: str = ""
    """The package that it comes from, with its version; empty for elastream's own."""


_DESCRIPTIONS = "__elastream_policies__"

PolicyClass = TypeVar("PolicyClass", bound=type[Any])


def policy(
    name: str,
    *,
    summary: str,
    needs: str,
    good_for: str,
    preset: Mapping[str, Any] | None = None,
    knobs: Mapping[str, Any] | None = None,
    whole_jobs: bool = False,
) -> Callable[[PolicyClass], PolicyClass]:
    """Describe a policy class for the catalog, under a name; several names may share a class."""

    def enter(options_class: PolicyClass) -> PolicyClass:
        described = PolicyInfo(
            name=name,
            summary=summary,
            needs=needs,
            good_for=good_for,
            options_class=options_class,
            preset=preset or {},
            knobs=knobs or {},
            whole_jobs=whole_jobs,
        )
        setattr(options_class, _DESCRIPTIONS, {**_descriptions(options_class), name: described})
        return options_class

    return enter


def _descriptions(found: Any) -> Mapping[str, PolicyInfo]:
    """Of the class itself, not of one that it is made of."""
    described: Mapping[str, PolicyInfo] = vars(found).get(_DESCRIPTIONS, {}) if isinstance(found, type) else {}
    return described


def _own() -> Mapping[str, PolicyInfo]:
    found: dict[str, PolicyInfo] = {}
    for module in pkgutil.walk_packages(elastream.policies.__path__, "elastream.policies."):
        for value in vars(importlib.import_module(module.name)).values():
            found.update(_descriptions(value))
    return found


def _checked(name: str, found: Any, origin: str) -> PolicyInfo:
    check_class(found, ("__call__",))
    described = _descriptions(found)
    if name not in described:
        known = ", ".join(described) or "none: the decorator @elastream.policy gives them"
        raise InvalidInput(f"{found.__name__} is no policy of the name {name!r}; its names are {known}")
    if not is_dataclass(found):
        raise InvalidInput(f"{found.__name__} is not a dataclass, whose fields would be its options")
    return replace(described[name], origin=origin)


_POLICIES: Registry[PolicyInfo] = Registry(group="elastream.policies", what="a policy", own=_own, check=_checked)


def catalog() -> Mapping[str, PolicyInfo]:
    """Every policy that can be used, by name, in alphabetical order."""
    return _POLICIES


def info(name: str) -> PolicyInfo:
    return _POLICIES.named(name)


def keeping(policy: Policy, latency_s: float | None) -> Policy:
    """The policy, with a backlog gone as soon as the latency asks for, where it works one off."""
    options: Any = policy
    leaves_it_alone = getattr(options, "single_window", False) and options.catch_up_s is None
    if latency_s is None or not hasattr(options, "catch_up_s") or leaves_it_alone:
        return policy
    catch_up_s = latency_s if options.catch_up_s is None else min(options.catch_up_s, latency_s)
    return cast(Policy, replace(options, catch_up_s=catch_up_s))


def create(name: str, options: Mapping[str, Any] | None = None) -> Policy:
    """The policy of that name, with options as a user wrote them."""
    entry = info(name)
    given = {**entry.preset, **(options or {})}
    return cast(Policy, build(entry.options_class, given, place=f"policy {name}"))
