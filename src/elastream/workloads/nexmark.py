"""The events of Nexmark: persons who open auctions, and bids on them, as Arrow tables.

Of 50 events one is a person, three are auctions and 46 bids, by their number. Every event follows from a seed and
its number alone, so any range of them can be made again, or elsewhere. Half of the bids go to the hot auction, the
first of the newest hundred, and most auctions and bids are of a hot person; the others are drawn from those that
came lately, and now and then from one that is yet to come.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from elastream.checked import NOT_NEGATIVE, Checked, NotNegative, Positive
from elastream.errors import InvalidInput

PERSONS, AUCTIONS, BIDS = "persons", "auctions", "bids"
SCHEMAS: Mapping[str, str] = {
    PERSONS: "id bigint, name string, email string, credit_card string, city string, state string, at timestamp, "
    "extra string",
    AUCTIONS: "id bigint, item string, description string, initial_bid bigint, reserve bigint, at timestamp, "
    "expires timestamp, seller bigint, category bigint, extra string",
    BIDS: "auction bigint, bidder bigint, price bigint, channel string, url string, at timestamp, extra string",
}
"""For `pipeline.feed`, and for Spark's readers."""
OF = 50
_FROM_TO: Mapping[str, tuple[int, int]] = {PERSONS: (0, 1), AUCTIONS: (1, 4), BIDS: (4, OF)}
"""Which of 50 events are of a stream."""

_FIRST_ID = 1000
_FIRST_CATEGORY, _CATEGORIES = 10, 5
_HOT_OF = 100
_ACTIVE_PERSONS, _IN_FLIGHT, _YET_TO_COME = 1000, 100, 10
_HORIZON = _IN_FLIGHT * OF / 3  # events, in which as many auctions are opened as are open at a time

_NAMES = ("Ada", "Ben", "Carla", "Dimitri", "Emeka", "Fumiko", "Greta", "Hugo", "Ines", "Jamal", "Kirsten")
_SURNAMES = ("Abel", "Brandt", "Costa", "Diallo", "Ek", "Fischer", "Garcia", "Haddad", "Ito")
_CITIES = ("Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Redmond", "Seattle", "Kent")
_STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
_HOT_CHANNELS, _CHANNELS = ("Google", "Facebook", "Baidu", "Apple"), 10_000
_WITH_CHANNEL_ID = 0.9
_LETTERS = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz ", dtype=np.uint8)
_TEXTS = 1_000  # a text is one of so many

Numbers = npt.NDArray[np.int64]
Shares = npt.NDArray[np.floating]
Times = Callable[[Numbers], npt.NDArray[np.floating]]
"""From the numbers of events to when they are due, in milliseconds."""


def evenly(*, events_per_s: float, begin_ms: float) -> Times:
    return lambda numbers: begin_ms + numbers * (1000 / events_per_s)


@dataclass(frozen=True, kw_only=True)
class Nexmark(Checked):
    """What decides each event, beside its number and the rate."""

    seed: Annotated[int, NOT_NEGATIVE] = 0
    group: int = 1
    """Events come out of order within groups of so many."""
    delayed: NotNegative = 0.0
    """The share of events whose event time lies before their turn, by up to `delay_s`."""
    delay_s: NotNegative = 3.0
    hot_auctions: Positive = 2.0
    """All bids but one in so many are for the hot auction: 20 is ten times as hot."""
    hot_sellers: Positive = 4.0
    hot_bidders: Positive = 4.0

    def __post_init__(self) -> None:
        Checked.__post_init__(self)
        if self.group < 1 or self.group % _STRIDE == 0:
            raise InvalidInput(f"group: expected at least 1 and no multiple of {_STRIDE}, found {self.group}")
        if self.delayed > 1:
            raise InvalidInput(f"delayed: expected a share of at most 1, found {self.delayed}")
        for name in ("hot_auctions", "hot_sellers", "hot_bidders"):
            if getattr(self, name) < 1:
                raise InvalidInput(f"{name}: expected at least 1 (none is hot), found {getattr(self, name)}")

    def numbers(self, stream: str, first: int, last: int) -> Numbers:
        """Of the events of a stream, in the order in which they come, from one place up to before another."""
        places = np.arange(first, last, dtype=np.int64)
        begins = places // self.group * self.group
        numbers = begins + places * _STRIDE % self.group
        low, high = _FROM_TO[stream]
        return numbers[(numbers % OF >= low) & (numbers % OF < high)]

    def before(self, stream: str, place: int) -> int:
        """How many events of a stream come before a place."""
        begin = place // self.group * self.group
        low, high = _FROM_TO[stream]
        whole = begin // OF * (high - low) + min(max(begin % OF - low, 0), high - low)
        return int(whole) + len(self.numbers(stream, begin, place))

    def table(self, stream: str, first: int, last: int, due_ms: Times) -> pa.Table:
        """The events of a stream, in the order in which they come, from one place up to before another."""
        make = {PERSONS: self._persons, AUCTIONS: self._auctions, BIDS: self._bids}[stream]
        return make(self.numbers(stream, first, last), due_ms)

    # The three kinds of events

    def _persons(self, numbers: Numbers, due_ms: Times) -> pa.Table:
        draw = self._draws(numbers)
        name, surname = draw.one_of(1, len(_NAMES)), draw.one_of(2, len(_SURNAMES))
        who = name * len(_SURNAMES) + surname
        return pa.table(
            {
                "id": _newest_person(numbers) + _FIRST_ID,
                "name": _pool("names").take(who),
                "email": _pool("emails").take(who),
                "credit_card": _pool("cards").take(draw.one_of(3, _TEXTS)),
                "city": _pool("cities").take(draw.one_of(4, len(_CITIES))),
                "state": _pool("states").take(draw.one_of(5, len(_STATES))),
                "at": _timestamps(self._at_ms(draw, due_ms)),
                "extra": _pool("long texts").take(draw.one_of(6, _TEXTS)),
            }
        )

    def _auctions(self, numbers: Numbers, due_ms: Times) -> pa.Table:
        draw = self._draws(numbers)
        at_ms = self._at_ms(draw, due_ms)
        horizon_ms = _HORIZON * (due_ms(numbers + 1) - due_ms(numbers))
        initial = _price(draw.shares(1))
        return pa.table(
            {
                "id": _newest_auction(numbers) + _FIRST_ID,
                "item": _pool("short texts").take(draw.one_of(2, _TEXTS)),
                "description": _pool("texts").take(draw.one_of(3, _TEXTS)),
                "initial_bid": initial,
                "reserve": initial + _price(draw.shares(4)),
                "at": _timestamps(at_ms),
                "expires": _timestamps(at_ms + 1 + np.floor(draw.shares(5) * np.maximum(1, 2 * horizon_ms))),
                "seller": self._person(draw, 6, hot=self.hot_sellers, which=0),
                "category": _FIRST_CATEGORY + draw.one_of(8, _CATEGORIES),
                "extra": _pool("long texts").take(draw.one_of(9, _TEXTS)),
            }
        )

    def _bids(self, numbers: Numbers, due_ms: Times) -> pa.Table:
        draw = self._draws(numbers)
        channel = np.where(
            draw.shares(1) < 0.5,
            draw.one_of(2, len(_HOT_CHANNELS)),
            len(_HOT_CHANNELS) + draw.one_of(3, _CHANNELS),
        )
        return pa.table(
            {
                "auction": self._auction(draw, 4),
                "bidder": self._person(draw, 6, hot=self.hot_bidders, which=1),
                "price": _price(draw.shares(8)),
                "channel": _pool("channels").take(channel),
                "url": _pool("urls").take(channel),
                "at": _timestamps(self._at_ms(draw, due_ms)),
                "extra": _pool("texts").take(draw.one_of(9, _TEXTS)),
            }
        )

    # What they are about

    def _person(self, draw: _Draws, place: int, *, hot: float, which: int) -> Numbers:
        newest = _newest_person(draw.numbers)
        active = np.minimum(newest + 1, _ACTIVE_PERSONS)
        anyone = newest + 1 - active + (draw.shares(place) * (active + _YET_TO_COME)).astype(np.int64)
        hot_one = newest // _HOT_OF * _HOT_OF + which
        return np.where(draw.shares(place + 1) < 1 - 1 / hot, hot_one, anyone) + _FIRST_ID

    def _auction(self, draw: _Draws, place: int) -> Numbers:
        newest = _newest_auction(draw.numbers)
        oldest = np.maximum(newest - _IN_FLIGHT, 0)
        any_one = oldest + (draw.shares(place) * (newest - oldest + 1 + _YET_TO_COME)).astype(np.int64)
        hot_one = newest // _HOT_OF * _HOT_OF
        return np.where(draw.shares(place + 1) < 1 - 1 / self.hot_auctions, hot_one, any_one) + _FIRST_ID

    def _at_ms(self, draw: _Draws, due_ms: Times) -> Shares:
        at_ms = np.floor(due_ms(draw.numbers))
        if self.delayed:
            late = draw.shares(20) < self.delayed
            at_ms -= np.where(late, np.floor(draw.shares(21) * self.delay_s * 1000), 0)
        return at_ms

    def _draws(self, numbers: Numbers) -> _Draws:
        return _Draws(numbers, self.seed)


_STRIDE = 953  # a prime, so that within a group every number comes once


def place_after(nexmark: Nexmark, stream: str, records: int) -> int:
    """The place from which on a stream goes on that has so many records: what comes before it is in it."""
    low, high = 0, OF * (records + 1) + 2 * nexmark.group
    while low < high:
        middle = (low + high) // 2
        if nexmark.before(stream, middle) < records:
            low = middle + 1
        else:
            high = middle
    return low


def _newest_person(numbers: Numbers) -> Numbers:
    return numbers // OF


def _newest_auction(numbers: Numbers) -> Numbers:
    """None is older than the first: a person that comes before all auctions is taken as if it came with it."""
    return np.maximum(numbers // OF * 3 + np.minimum(numbers % OF, 3) - 1, 0)


def _price(shares: Shares) -> Numbers:
    """In cents, from a dollar to a million, each power of ten as often."""
    return np.round(10 ** (6 * shares) * 100).astype(np.int64)


def _timestamps(at_ms: Shares) -> pa.Array:
    return pa.array((at_ms * 1000).astype(np.int64), pa.timestamp("us", tz="UTC"))


# Chance: a hash of the seed, the number of the event and the place where it is drawn, so that there is no order in
# which events have to be made


class _Draws:
    def __init__(self, numbers: Numbers, seed: int) -> None:
        self.numbers = numbers
        self._keys = numbers.astype(np.uint64) * np.uint64(_ODD)
        self._seed = seed

    def shares(self, place: int) -> Shares:
        """From 0 to below 1."""
        begin = _mixed(np.array([self._seed * 1000 + place + 1], dtype=np.uint64) * np.uint64(_ODD))
        return (_mixed(self._keys + begin) >> np.uint64(11)) * 2.0**-53

    def one_of(self, place: int, count: int) -> Numbers:
        return (self.shares(place) * count).astype(np.int64)


_ODD = 0x9E3779B97F4A7C15


def _mixed(bits: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The finalizer of SplitMix64 (Steele, Lea and Flood 2014)."""
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


# Texts: drawn from pools, as making each anew would be most of the work


@cache
def _pool(name: str) -> pa.Array:
    makers: Mapping[str, Callable[[], Sequence[str]]] = {
        "names": lambda: [f"{name} {surname}" for name in _NAMES for surname in _SURNAMES],
        "emails": lambda: [f"{n}.{s}@{s}.example".lower() for n in _NAMES for s in _SURNAMES],
        "cards": lambda: [
            " ".join(f"{number * 7919 * part % 10_000:04d}" for part in (1, 2, 3, 5)) for number in range(_TEXTS)
        ],
        "cities": lambda: _CITIES,
        "states": lambda: _STATES,
        "channels": lambda: [*_HOT_CHANNELS, *(f"channel-{number}" for number in range(_CHANNELS))],
        "urls": _urls,
        "short texts": lambda: _texts(12, seed=1),
        "texts": lambda: _texts(68, seed=2),
        "long texts": lambda: _texts(120, seed=3),
    }
    return pa.array(makers[name](), pa.string())


def _urls() -> list[str]:
    """Of each channel; one in ten does not say which channel it is."""
    draw = _Draws(np.arange(len(_HOT_CHANNELS) + _CHANNELS), seed=4)
    parts = [np.char.mod("%x", draw.one_of(place, 1 << 20)) for place in (1, 2, 3)]
    said = draw.shares(4) < _WITH_CHANNEL_ID
    return [
        f"https://www.nexmark.com/{x}/{y}/{z}/item.htm?query=1" + (f"&channel_id={number}" if says else "")
        for number, (x, y, z, says) in enumerate(zip(*parts, said, strict=True))
    ]


def _texts(mean: int, *, seed: int) -> list[str]:
    """Of letters and spaces, by up to a fifth longer or shorter."""
    lengths = (0.8 * mean + _Draws(np.arange(_TEXTS), seed).shares(1) * 0.4 * mean).astype(int)
    letters = _LETTERS[_Draws(np.arange(int(lengths.sum())), seed).one_of(2, len(_LETTERS))].tobytes().decode()
    ends = np.cumsum(lengths)
    return [letters[end - length : end] for end, length in zip(ends, lengths, strict=True)]
