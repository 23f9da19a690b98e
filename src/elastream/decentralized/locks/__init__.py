"""Group mutual exclusion: members of one group may be inside together, members of two groups never."""

from elastream.decentralized.locks.port import GroupLock, LockStep, Position, Site
from elastream.decentralized.locks.ra1 import Ra1
from elastream.decentralized.locks.ra2 import Ra2
from elastream.decentralized.locks.two_fgme import TwoFgme

__all__ = ["GroupLock", "LockStep", "Position", "Ra1", "Ra2", "Site", "TwoFgme"]
