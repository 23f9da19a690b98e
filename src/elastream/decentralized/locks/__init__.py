"""Group mutual exclusion: members of one group may be inside together, members of two groups never."""

from collections.abc import Mapping
from enum import StrEnum

from elastream.decentralized.locks.port import GroupLock, LockPosition, LockSite, LockStep
from elastream.decentralized.locks.ra1 import Ra1
from elastream.decentralized.locks.ra2 import Ra2
from elastream.decentralized.locks.two_fgme import TwoFgme


class LockKind(StrEnum):
    NONE = "none"
    """The acknowledgements of the protocol alone (chapter 3 of the thesis)."""
    TWO_FGME = "2-fgme"
    RA1 = "ra1"
    RA2 = "ra2"


LOCKS: Mapping[LockKind, type[TwoFgme] | type[Ra1] | type[Ra2]] = {
    LockKind.TWO_FGME: TwoFgme,
    LockKind.RA1: Ra1,
    LockKind.RA2: Ra2,
}

__all__ = ["LOCKS", "GroupLock", "LockKind", "LockPosition", "LockSite", "LockStep", "Ra1", "Ra2", "TwoFgme"]
