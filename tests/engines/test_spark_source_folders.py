"""A folder that a source reads and that is deleted while it runs."""

from __future__ import annotations

import time

from elastream.engines.spark.source_folders import SourceFolders


class Disk:
    def __init__(self, *there: str) -> None:
        self.there = set(there)
        self.answers = True
        self.now_s = 0.0

    def folders(self) -> SourceFolders:
        found = SourceFolders(
            there=lambda path: path in self.there if self.answers else None, clock=lambda: self.now_s
        )
        found.declare("bids", ["incoming", "older"])
        found.declare("rates", [])
        return found


def test_one_that_is_gone_is_told_until_it_is_back() -> None:
    disk = Disk("incoming", "older")
    folders = disk.folders()
    assert folders.look() == ()
    disk.there.discard("incoming")
    disk.now_s = 100.0
    since = time.strftime("%H:%M:%S", time.localtime(100.0))
    told = (f"bids: incoming, which it reads, is gone since {since}; nothing can arrive until it is back",)
    assert folders.look() == told
    disk.now_s = 200.0
    assert folders.look() == folders.gone() == told, "since it was gone, not since the last look"
    disk.there.add("incoming")
    assert folders.look() == folders.gone() == ()


def test_one_that_was_never_there_is_none() -> None:
    assert Disk().folders().look() == ()


def test_a_disk_that_does_not_answer_says_nothing() -> None:
    disk = Disk("incoming", "older")
    folders = disk.folders()
    folders.look()
    disk.answers = False
    assert folders.look() == ()
