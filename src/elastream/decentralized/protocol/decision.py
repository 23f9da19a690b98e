"""Whether an instance duplicates, ends or stays: its own load, a target, and a seeded random draw (the
thesis, 3.3.1, 3.3.3).

An instance that receives l records per second, can process C and should run at the share r of that is worth
l / (r·C) instances; it is one already, so its factor is p = l / (r·C) − 1. Above the upper threshold it duplicates
⌊p⌋ times and once more with the probability that is left. Below the lower one it ends itself with probability |p|,
unless it is its operator's keeper. As all instances of an operator see about the same load, they add or remove
together, on average, just what is needed, without asking each other.

An operator may have bounds on its instances. Nobody knows how many others decide at this moment, so each goes by
its fair part of the room that is left, and together they fill it on average. Where chance made too many, each but
the keeper ends with what it takes to get back; where there are too few, each duplicates with what is missing.

What has piled up may be given a time by which it is to be gone. Working it off takes all that an instance can do,
not the share that it should use day by day, so it counts where that is more than what arrives asks for.

What differs from the pseudo-code: p is not rounded down (then a load of one to two times the target would never
duplicate, and every lower one would end everybody but the keeper), one duplication is enough to act, and the
thresholds are compared with l / C.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace
from enum import StrEnum

from elastream.checked import Checked, Count, NotNegative, Positive, Share
from elastream.dataflow import Operator
from elastream.errors import InvalidInput


class Variant(StrEnum):
    """Both give the same factor as long as the load is shared fairly; the second can look ahead."""

    LOCAL = "local"
    """The thesis: from the own load alone."""
    COUNTED = "counted"
    """The paper: from the operator's load, the own one times the number of instances that a predecessor tells."""


@dataclass(frozen=True, kw_only=True)
class ScalingPolicy(Checked):
    """The user's side of the decision. The defaults are those of both papers."""

    target_load: Share = 0.7
    """The share of its capacity that an instance should use: r."""
    upper_load: float = 0.8
    """Duplicate from here on."""
    lower_load: float = 0.6
    """End from here down."""
    secure: bool = False
    """Scale out to r_secure where that is lower than the target, so that chance never delays records."""
    variant: Variant = Variant.LOCAL
    look_ahead: bool = False
    """Do not end where the rest would then be above the upper threshold; needs the count of instances.

    Where no count lies between the thresholds, the plain policy oscillates for ever."""
    catch_up_s: Positive | None = None
    """In what time to work off what has piled up. None, as in both papers: with what the target leaves unused."""

    def __post_init__(self) -> None:
        Checked.__post_init__(self)
        if not 0 <= self.lower_load < self.upper_load:
            raise InvalidInput(
                f"the thresholds cross: lower_load ({self.lower_load:g}) must be below "
                f"upper_load ({self.upper_load:g})"
            )
        if not self.lower_load <= self.target_load <= self.upper_load:
            raise InvalidInput(
                f"target_load ({self.target_load:g}) must lie between lower_load ({self.lower_load:g}) "
                f"and upper_load ({self.upper_load:g})"
            )
        if self.look_ahead and self.variant is not Variant.COUNTED:
            raise InvalidInput("look_ahead needs to know the number of instances: use the variant 'counted'")


@dataclass(frozen=True, kw_only=True)
class Situation(Checked):
    """What an instance knows of itself when it decides."""

    load_per_s: NotNegative
    capacity_per_s: Positive
    """Its own: nodes may differ."""
    overdue: NotNegative = 0.0
    """Records that wait in its inbox beyond those that always do."""
    keeper: bool = False
    instances: Count | None = None
    """Of its operator, itself among them; the variant 'counted' needs it, and where there are bounds it counts."""
    least: int = 1
    """How many instances its operator should have whatever the load. Who does not know how many there are cannot
    keep that."""
    most: Count | None = None
    """How many instances its operator may have."""
    parts: int | None = None
    """Into how many its own load can be divided, where that is bounded: more copies would have nothing to do."""

    def __post_init__(self) -> None:
        Checked.__post_init__(self)
        if not 1 <= self.least <= (self.most or self.least):
            bounds = f"{self.least} to {self.most or 'any'}"
            raise InvalidInput(f"an operator has at least one instance and at most its bound, found {bounds}")

    @property
    def load(self) -> float:
        """As a share of the capacity."""
        return self.load_per_s / self.capacity_per_s

    @property
    def known(self) -> int:
        """How many instances there are for certain: itself, where nobody has told."""
        return self.instances or 1

    @property
    def room(self) -> float:
        """How many may still come, as far as is known; below 0 where there are too many."""
        return math.inf if self.most is None else self.most - self.known

    @property
    def spare(self) -> float:
        """How many may still go, as far as is known; below 0 where there are too few."""
        return math.inf if self.instances is None else self.instances - self.least


@dataclass(frozen=True, kw_only=True)
class Stay:
    why: str


@dataclass(frozen=True, kw_only=True)
class Duplicate:
    times: int
    why: str


@dataclass(frozen=True, kw_only=True)
class Leave:
    why: str


Action = Stay | Duplicate | Leave


def decide(policy: ScalingPolicy, now: Situation, rng: random.Random) -> Action:
    """One turn of Algorithm 11. Chance decides only where the load is beyond a threshold, or a bound not kept."""
    now = with_backlog(policy, now)
    if now.room < 0:
        return _perhaps_make_room(now, rng)
    if now.spare < 0:
        return _perhaps_fill_up(now, rng)
    if now.load >= policy.upper_load:
        return _perhaps_duplicate(policy, now, rng)
    if now.load <= policy.lower_load:
        return _perhaps_leave(policy, now, rng)
    return Stay(why=f"load {now.load:.3f} is between {policy.lower_load:g} and {policy.upper_load:g}")


def with_backlog(policy: ScalingPolicy, now: Situation) -> Situation:
    """The same with the load at which the overdue records are worked off in time, where that is higher."""
    if policy.catch_up_s is None:
        return now
    to_process_per_s = now.load_per_s + now.overdue / policy.catch_up_s
    return replace(now, load_per_s=max(now.load_per_s, policy.target_load * to_process_per_s))


def replication_factor(policy: ScalingPolicy, now: Situation, target: float) -> float:
    """How many more instances this one is worth: negative where it is one too many."""
    match policy.variant:
        case Variant.LOCAL:
            return now.load / target - 1
        case Variant.COUNTED:
            count = _counted(now)
            missing = now.load_per_s * count / (target * now.capacity_per_s) - count
            return missing / count


def secure_target(policy: ScalingPolicy, now: Situation) -> float:
    """The thesis's r_secure, where it is lower than the target: the load after the fewest whole duplications that
    leave nobody above its capacity."""
    copies = math.ceil(now.load - 1) + 1
    return min(policy.target_load, now.load / max(1, copies))


def duplications(factor: float, rng: random.Random) -> int:
    """⌊p⌋, and one more with the probability that is left."""
    whole = math.floor(factor)
    return whole + (rng.random() < factor - whole)


def why_not_scalable(operator: Operator) -> str:
    """What keeps an operator at one instance here; empty where nothing does."""
    if operator.state_partitions is not None:
        return f"{operator.name!r} is stateful: its instances cannot come and go on their own, it is kept at one"
    if operator.fixed:
        return f"{operator.name!r} cannot be parallel: it is kept at one"
    return ""


def _perhaps_duplicate(policy: ScalingPolicy, now: Situation, rng: random.Random) -> Action:
    target = secure_target(policy, now) if policy.secure else policy.target_load
    factor = replication_factor(policy, now, target)
    why = f"load {now.load:.3f} is at least {policy.upper_load:g}, factor {factor:.3f} for target {target:.3f}"
    if (part := now.room / now.known) < factor:
        why += f", but {now.known} of at most {now.most} instances run: room for {part:.3f}"
        factor = part
    if now.parts is not None and factor > (others := max(0, now.parts - 1)):
        why += f", but its load has {now.parts} parts"
        factor = others
    if times := duplications(factor, rng):
        return Duplicate(times=times, why=why)
    return Stay(why=f"{why}, and the die said no" if factor > 0 else why)


def _perhaps_make_room(now: Situation, rng: random.Random) -> Action:
    too_many = f"{now.known} instances are more than the {now.most} that there may be"
    if now.keeper:
        return Stay(why=f"{too_many}, but the keeper stays")
    probability = -now.room / (now.known - 1)
    why = f"{too_many}, ends with probability {probability:.3f}"
    return Leave(why=why) if rng.random() < probability else Stay(why=f"{why}, and the die said no")


def _perhaps_fill_up(now: Situation, rng: random.Random) -> Action:
    factor = -now.spare / now.known
    why = f"{now.known} instances are fewer than the {now.least} that there should be, factor {factor:.3f}"
    if times := duplications(factor, rng):
        return Duplicate(times=times, why=why)
    return Stay(why=f"{why}, and the die said no")


def _perhaps_leave(policy: ScalingPolicy, now: Situation, rng: random.Random) -> Action:
    if now.keeper:
        return Stay(why=f"load {now.load:.3f} is at most {policy.lower_load:g}, but the keeper stays")
    if policy.look_ahead and _too_much_for_the_rest(policy, now):
        return Stay(
            why=f"load {now.load:.3f} is low, but the rest would be above {policy.upper_load:g} without this"
        )
    probability = min(1.0, -replication_factor(policy, now, policy.target_load))
    why = f"load {now.load:.3f} is at most {policy.lower_load:g}"
    if (part := now.spare / max(1, now.known - 1)) < probability:
        why += f", but {now.known} of at least {now.least} instances run"
        probability = part
    why += f", ends with probability {probability:.3f}"
    if rng.random() < probability:
        return Leave(why=why)
    return Stay(why=f"{why}, and the die said no" if probability > 0 else why)


def _too_much_for_the_rest(policy: ScalingPolicy, now: Situation) -> bool:
    count = _counted(now)
    return count == 1 or now.load * count / (count - 1) >= policy.upper_load


def _counted(now: Situation) -> int:
    if now.instances is None:
        raise InvalidInput("the variant 'counted' needs the number of instances, and it is not known")
    return now.instances
