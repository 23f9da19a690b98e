"""Where a run keeps what it knows. The folder is also how instances find each other.

run.json                        what is run: the pipeline's file, the policy, the capacities
stop                            there once the run is to end
starting-0, starting-1          held by who starts its Spark: two at a time, so that a node is not swamped
feeds/NAME/0/                   the channel of a feed, which someone outside writes: the inbox of its instance
instances/OPERATOR/NUMBER/      an instance:
    journal.json                its protocol and its links, replaced whole before it says anything
    endpoint.json               where it listens for control messages
    position.json               how far it has read its topic, where they come over Kafka
    inbox/OPERATOR/NUMBER/      records from one sender, which is the only one to write there
    outbox/                     the batch that is being shared out
    plans/                      what the last batches of its query read
    checkpoint/                 of its query
    identity                    of a sink that keeps records: what no other folder has
    events.jsonl, log.txt       what happened to it
    metrics.jsonl               what it received, processed and sent, every few seconds
    closed                      it was declared dead: no process of it may run
    ended                       it is gone for good
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from elastream.decentralized.protocol.messages import Address, operator_of
from elastream.errors import ElastreamError
from elastream.whole_files import make_folder, read_json, write_json
from elastream.whole_files import write_whole as write_file

_STARTING_AT_A_TIME = 2
_LOCK_POLL_S = 0.1


class InstanceFolder:
    def __init__(self, path: Path, me: Address) -> None:
        self.path, self.me = path, me
        self.journal = path / "journal.json"
        self.endpoint = path / "endpoint.json"
        self.inbox = path / "inbox"
        self.outbox = path / "outbox"
        self.plans = path / "plans"
        self.checkpoint = path / "checkpoint"
        self.events = path / "events.jsonl"
        self.metrics = path / "metrics.jsonl"
        self.log = path / "log.txt"

    @property
    def has_ended(self) -> bool:
        return (self.path / "ended").exists()

    def mark_ended(self) -> None:
        write_file(self.path / "ended", b"")

    @property
    def is_closed(self) -> bool:
        return (self.path / "closed").exists()

    def close(self) -> None:
        make_folder(self.path)  # somebody may have died between the decision to make it and making it
        write_file(self.path / "closed", b"")

    def lane(self, sender: Address) -> Path:
        """Where this sender puts records for this instance."""
        return self.inbox / sender


class RunFolder:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.settings = path / "run.json"
        self.stop = path / "stop"

    @property
    def is_over(self) -> bool:
        """Whether it is to end, or its folder was taken away."""
        return self.stop.exists() or not self.settings.exists()

    def feed(self, name: str) -> Path:
        return self.path / "feeds" / name / "0"

    def instance(self, address: Address) -> InstanceFolder:
        operator_of(address)  # refuses what is no address
        return InstanceFolder(self.path / "instances" / address, address)

    def instances(self) -> list[InstanceFolder]:
        """All that ever were, in the order of their addresses."""
        found = sorted((self.path / "instances").glob("*/*"))
        return [InstanceFolder(path, f"{path.parent.name}/{path.name}") for path in found]

    @contextmanager
    def turn_to_start(self) -> Iterator[None]:
        """Wait for one of the turns; it is given back when the process dies, too."""
        number = os.getpid() % _STARTING_AT_A_TIME
        with (self.path / f"starting-{number}").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def take_lock(path: Path, what: str, *, patience_s: float = 0.0) -> TextIO:
    """Held until the file is closed or the process ends; refused where someone else holds it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.open("w")
    deadline_s = time.monotonic() + patience_s
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return file
        except OSError:
            if time.monotonic() >= deadline_s:
                file.close()
                raise ElastreamError(f"{what} runs already in another process, which holds {path}") from None
        time.sleep(_LOCK_POLL_S)


def write_whole(path: Path, data: Mapping[str, Any]) -> None:
    """Whole or not at all, in a folder that is made if need be."""
    make_folder(path.parent)
    write_json(path, data)


def read_whole(path: Path) -> Any | None:
    return read_json(path)
