"""A pipeline in a local folder where Spark's default file system is HDFS: killed, started again, nothing lost.

    python hdfs_story.py [--yarn]

prints what it saw. The tests live through it on HDFS alone; `make test-yarn` also with executors on YARN.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import hdfs_driver as program
from exactly_once import Driver
from hadoop import Hadoop
from running import records

from elastream.engines.spark.channels.files import FileChannel
from elastream.engines.spark.channels.kinds import Files
from elastream.engines.spark.workspace import Workspace

FILES = 8
NUMBERS_PER_FILE = 50


@dataclass(frozen=True, kw_only=True)
class Ending:
    refused: str
    """What the check of folders says where paths have no scheme."""
    failed: str
    """What a batch says that was written without a scheme, and so to HDFS."""
    published_meanwhile: int
    on_hdfs_by_mistake: int
    """Files, which show that Spark did write them."""
    retried: str
    """How many records a batch has whose tasks were tried twice, as it says and as they are read."""
    counted_when_killed: int
    """Records in the windows that were kept by then."""
    on_hdfs_since: list[str]
    """What came there after the paths had their scheme."""
    faults: list[str]


def tell(folder: Path, hadoop: Hadoop, more: Sequence[str] = ()) -> Ending:
    program.incoming(folder).mkdir()
    put(folder, range(FILES // 2))

    def driver(*options: str) -> Driver:
        return Driver(
            folder, Files(), script=program.__file__, environment=hadoop.environment, more=[*more, *options]
        )

    with driver("--without-scheme") as astray:
        astray.wait_until(lambda: "numbers failed and was started again" in astray.said(), "told that it failed")
        said = astray.said().splitlines()
        published = head(folder, "numbers")
    before = set(hadoop.files())
    with driver() as killed:
        killed.wait_until(lambda: bool(kept(folder)), "half-way")
        counted = sum(count for count, *_ in kept(folder).values())
    put(folder, range(FILES // 2, FILES))
    with driver() as last:
        last.wait_until(lambda: is_done(folder), "done")
        last.stop()
    return Ending(
        refused=_line(said, "refused: "),
        failed=_line(said, "numbers failed and was started again: "),
        published_meanwhile=published,
        on_hdfs_by_mistake=sum(path.endswith(".parquet") for path in before),
        retried=_line(said, "retried: "),
        counted_when_killed=counted,
        on_hdfs_since=sorted(set(hadoop.files()) - before),
        faults=faults(folder),
    )


# What goes in, and what has come out


def put(folder: Path, files: range) -> None:
    """Each whole or not there at all, as Spark wants it."""
    for number in files:
        first = number * NUMBERS_PER_FILE
        lines = (json.dumps({"id": one}) for one in range(first, first + NUMBERS_PER_FILE))
        beside = folder / f"{number}.json"
        beside.write_text("\n".join(lines))
        os.replace(beside, program.incoming(folder) / beside.name)


def expected() -> list[int]:
    return [number for number in range(FILES * NUMBERS_PER_FILE) if number % program.LEFT_OUT]


def head(folder: Path, step: str) -> int:
    return Workspace(program.workspace(folder), "on_hdfs").channel(step).log.head().records


def kept(folder: Path) -> dict[int, tuple[int, ...]]:
    """The newest of each window: counts, and so all of it, only grow."""
    return {begin: tuple(found) for begin, *found in sorted(records(FileChannel(program.kept(folder))))}


def is_done(folder: Path) -> bool:
    """All are kept that are to be, and nothing is on its way."""
    channels = Workspace(program.workspace(folder), "on_hdfs")
    pending = [
        channels.channel(read).log.pending(reader)
        for read, reader in (("numbers", "passed"), ("passed", "counts"), ("counts", "kept_counts"))
    ]
    return head(folder, "numbers") >= FILES * NUMBERS_PER_FILE and not any(pending)


def faults(folder: Path) -> list[str]:
    """What is wrong with what is kept, in words."""
    right: dict[int, tuple[int, int, int]] = {}
    for number in expected():
        begin = number - number % program.WINDOW_S
        count, total, squares = right.get(begin, (0, 0, 0))
        right[begin] = (count + 1, total + number, squares + number * number)
    found = kept(folder)
    return [
        f"the window from {begin} has {found.get(begin)}, it should have {right.get(begin)}"
        for begin in sorted({*right, *found})
        if found.get(begin) != right.get(begin)
    ]


def _line(said: Sequence[str], beginning: str) -> str:
    return next((line.removeprefix(beginning) for line in said if line.startswith(beginning)), "")


def main(*, yarn: bool) -> None:
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch, Hadoop(Path(scratch) / "hadoop", yarn=yarn) as hadoop:
        print(f"Hadoop is up after {time.monotonic() - began_s:.0f} s at {hadoop.file_system}", flush=True)
        folder = Path(scratch) / "pipeline"
        folder.mkdir()
        ending = tell(folder, hadoop, ["--master", "yarn"] if yarn else [])
        ended = hadoop.ended()
    print(json.dumps(ending.__dict__, indent=1))
    print(f"{time.monotonic() - began_s:.0f} s")
    if ending.faults or ended or not ending.failed or ending.published_meanwhile:
        sys.exit(f"not as it should be: {ending.faults} {ended}")


if __name__ == "__main__":
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--yarn", action="store_true")
    main(yarn=arguments.parse_args().yarn)
