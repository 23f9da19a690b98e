"""Who of several masters evaluates the rules: whoever holds the lease. The port to a store, and what a lease is.

A lease has a term, which grows with every change of hands. It ends by itself if it is not renewed in time, and
whatever its holder writes is checked against the term in the same transaction (fencing): a master that was held up
for longer than its lease, and does not know it yet, finds that its intent to act cannot be written, and an intent
that is not written is not carried out.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from elastream.errors import ElastreamError

_RENEWALS = 4  # within the time of a lease
_MARGIN = 0.1  # of it, by which a holder takes it for ended before anyone else does


class LeaseError(ElastreamError):
    """The store of the lease does not answer, or does not know this holder any more: nobody acts."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Lease:
    term: int
    holder: str


class LeaseStore(Protocol):
    """Where the lease lies. Every call is atomic; one that cannot be done is a LeaseError."""

    def take(self, holder: str, *, lasts_s: float) -> Lease | None:
        """The lease with a new term, if nobody holds it; None while someone does."""

    def renew(self, lease: Lease, *, lasts_s: float) -> bool:
        """From now on for so long; False where someone else has taken it."""

    def release(self, lease: Lease) -> None:
        """Give it back, so that the next one need not wait for its end."""

    def holder(self) -> str:
        """Who holds it, for people to read; empty where nobody does."""


class HeldLease:
    """A lease that is renewed by a thread of its own, as an action may take longer than it lasts.

    `with HeldLease(...) as held:` and ask `held.is_held` before anything is done; it is given back at the end.
    """

    def __init__(
        self, store: LeaseStore, lease: Lease, *, lasts_s: float, steady: Callable[[], float] = time.monotonic
    ) -> None:
        self.lease = lease
        self._store, self._lasts_s, self._steady = store, lasts_s, steady
        self._ends_s = steady() + lasts_s * (1 - _MARGIN)
        self._trouble = ""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._keep_renewing, name="lease", daemon=True)

    def __enter__(self) -> HeldLease:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        if self.is_held:
            with suppress(LeaseError):  # of a store that is away it ends by itself, when its time is over
                self._store.release(self.lease)

    @property
    def is_held(self) -> bool:
        """By this process's own clock: also where the store does not answer."""
        return self._steady() < self._ends_s

    @property
    def why_not(self) -> str:
        return self._trouble or "it was not renewed in time"

    def check(self) -> None:
        if not self.is_held:
            raise LeaseError(f"this master leads no longer (term {self.lease.term}): {self.why_not}")

    def _keep_renewing(self) -> None:
        while not self._over.wait(self._lasts_s / _RENEWALS):
            began_s = self._steady()
            try:
                if not self._store.renew(self.lease, lasts_s=self._lasts_s):
                    self._trouble, self._ends_s = "another master has taken over", began_s
                    return
            except LeaseError as error:
                self._trouble = str(error)  # it may answer again before the lease ends
            else:
                self._ends_s = began_s + self._lasts_s * (1 - _MARGIN)
