"""Links between instances: nothing lost, repeated or reordered, whatever breaks; who is stale is refused."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastream.decentralized.protocol.link import Incoming, LinkBroken, Outgoing, Stale

EVENTS = ("post", "connect", "break_off", "kill_sender", "deliver", "acknowledge")


class Wire:
    """A sender and a receiver, each with what is on its disk, and connections that break when they are told to.

    A kill puts a side back to what it wrote down. An acknowledgement is only sent for what is on disk.
    """

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.sender = self.sender_disk = Outgoing()
        self.receiver = Incoming()
        self.delivered: list[int] = []
        self._sent: list[tuple[int, int]] | None = None
        """What is on its way; none without a connection."""
        self._acknowledgements: list[int] = []

    def post(self, value: int) -> None:
        self.sender = self.sender_disk = self.sender.post({"value": value})
        if self._sent is not None:
            envelope = self.sender.waiting[-1]
            self._sent.append((envelope.number, envelope.body["value"]))

    def connect(self) -> None:
        self._acknowledgements = []
        self.sender = self.sender.acknowledged(self.receiver.taken)
        self._sent = [(envelope.number, envelope.body["value"]) for envelope in self.sender.waiting]

    def break_off(self) -> None:
        self._sent, self._acknowledgements = None, []

    def kill_sender(self) -> None:
        self.break_off()
        self.sender = self.sender_disk  # its acknowledgements were not written down

    def deliver(self) -> None:
        if not self._sent:
            return
        number, value = self._sent.pop(0)
        if not self.receiver.repeats(number):
            self.receiver = self.receiver.take(number)
            self.delivered.append(value)
        self._acknowledgements.append(number)

    def acknowledge(self) -> None:
        if self._acknowledgements:
            self.sender = self.sender.acknowledged(self._acknowledgements.pop(0))
            if self._rng.random() < 0.5:
                self.sender_disk = self.sender


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.sampled_from(["post", "connect", "break_off", "kill_sender", "deliver", "acknowledge"]), max_size=60
    ),
    st.integers(0, 1_000),
)
def test_everything_arrives_once_and_in_order_whatever_breaks(events: list[str], seed: int) -> None:
    wire, posted = Wire(random.Random(seed)), 0
    for event in events:
        if event == "post":
            wire.post(posted)
            posted += 1
        else:
            getattr(wire, event)()
        assert wire.delivered == list(range(len(wire.delivered))), "once, and in order, at any time"
    wire.connect()
    for _ in range(posted):
        wire.deliver()
        wire.acknowledge()
    assert wire.delivered == list(range(posted))
    assert wire.sender.waiting == ()


def test_a_gap_and_an_acknowledgement_of_the_future_break_the_link() -> None:
    with pytest.raises(LinkBroken, match="message 1 was expected, found 2"):
        Incoming().take(2)
    with pytest.raises(LinkBroken, match="only 1 were sent"):
        Outgoing().post({}).acknowledged(2)


def test_a_stale_process_is_refused_and_the_newest_is_not() -> None:
    met = Incoming().greeted(3)
    assert met.greeted(3) == met, "it may connect again"
    with pytest.raises(Stale, match="start 2 of it is over, start 3 has taken its place"):
        met.greeted(2)
