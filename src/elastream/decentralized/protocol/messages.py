"""What instances say to each other, what a step asks of whoever runs it, and how instances are addressed.

An address is the operator's name and a number, `inZone/0.2`. It says which operator the sender of a message
belongs to (Algorithms 5 and 9 need that and do not have it), and is never used again: the second copy that
`inZone/0` makes is `inZone/0.2`, so that unique names need no coordination.
"""

from __future__ import annotations

from dataclasses import dataclass

from elastream.errors import InvalidInput

Address = str


def address(operator: str, number: str) -> Address:
    if not operator or not number or "/" in number:
        raise InvalidInput(f"an address is 'operator/number', found {operator!r} and {number!r}")
    return f"{operator}/{number}"


def operator_of(instance: Address) -> str:
    operator, _, number = instance.rpartition("/")
    if not operator or not number:
        raise InvalidInput(f"an address is 'operator/number', found {instance!r}")
    return operator


# Messages


@dataclass(frozen=True, slots=True)
class Duplication:
    """These instances of the sender's operator are about to start."""

    added: tuple[Address, ...]


@dataclass(frozen=True, slots=True)
class DuplicationAck:
    told: bool = False
    """The sender leaves, had heard of the new instances before, and has told them so itself."""


@dataclass(frozen=True, slots=True)
class Start:
    """To a new instance: these are your neighbours, as far as I know them."""

    successors: frozenset[Address]
    predecessors: frozenset[Address]
    leaving: frozenset[Address] = frozenset()
    """They have left me and know of you: expect their Deletion."""


@dataclass(frozen=True, slots=True)
class Deletion:
    """The sender leaves. From a successor: send it nothing more. From a predecessor: it has sent its last
    record."""


@dataclass(frozen=True, slots=True)
class DeletionAck:
    pass


Message = Duplication | DuplicationAck | Start | Deletion | DeletionAck

# Where somebody dies for good (`survivors.py`)


@dataclass(frozen=True, slots=True)
class Suspicion:
    """To the keeper of its operator: the sender cannot reach it."""

    missing: Address


@dataclass(frozen=True, slots=True)
class CanYouReach:
    """From the keeper of its operator to its neighbours: somebody cannot. Who can says nothing."""

    instance: Address


@dataclass(frozen=True, slots=True)
class Death:
    """From the keeper of its operator: it is gone for good. Believe it nothing, send it nothing, await nothing."""

    instance: Address


@dataclass(frozen=True, slots=True)
class DeathHeard:
    """To the keeper: what was fixed for the dead is in its inbox, and nothing more will follow."""

    instance: Address


OfDeath = Suspicion | CanYouReach | Death | DeathHeard


# Effects


@dataclass(frozen=True, slots=True)
class Create:
    """Bring a new instance into being. It waits for its Start; what is sent to it meanwhile must not be lost."""

    instance: Address


@dataclass(frozen=True, slots=True)
class Flush:
    """Whatever was sent to these successors has to be in their inboxes before the messages of this step go out."""

    successors: tuple[Address, ...]


@dataclass(frozen=True, slots=True)
class Activate:
    """Begin to process."""


@dataclass(frozen=True, slots=True)
class Drain:
    """Nothing more will arrive: process what is there, then report `drained`."""


@dataclass(frozen=True, slots=True)
class End:
    """The instance is done and may be taken away."""


@dataclass(frozen=True, slots=True)
class TakeOver:
    """Close the place of somebody who was declared dead, put what was fixed in its outbox into the inboxes, and
    what is left in its inbox into one's own; then report `taken_over`."""

    instance: Address


@dataclass(frozen=True, slots=True)
class Halt:
    """The instance was declared dead: stop at once, and leave everything as it is."""


Effect = Create | Flush | Activate | Drain | End | TakeOver | Halt
