"""Power losses, all of them: what a disk may hold after one, given what was synced up to then.

A `Disk` looks at a folder whenever something in it is synced, and so knows what is only in memory. Of that, a
power loss keeps:

- of a file that was synced and not changed since, all; else what was last synced, nothing, a half, or all;
- the names that a folder had when it was last synced; each change since (a file made, renamed, deleted) or not,
  by itself, in any order, but a rename as one.

That is what POSIX promises, and less than most file systems keep. Nothing is known of the order of what was not
synced, so that a state of memory is enough to tell all that the disk may hold.
"""

from __future__ import annotations

import itertools
import os
import random
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest

from elastream import whole_files


@dataclass
class _Node:
    """A file or a folder, whatever its names are; `held` keeps its number from being used again."""

    held: int
    is_folder: bool
    content: bytes = b""
    synced: bytes | None = None
    names: dict[str, int] = field(default_factory=dict)
    synced_names: dict[str, int] = field(default_factory=dict)


Tree = Mapping[str, "bytes | Tree"]


class Disk:
    def __init__(self, root: Path, *, most_states: int, seed: int = 0) -> None:
        """Where a moment has more states than that, the extremes are taken, and a sample."""
        self.root = root
        self._most_states = most_states
        self.syncs = 0
        self._random = random.Random(seed)
        self._nodes: dict[int, _Node] = {}
        self._on_moment: Callable[[], None] = lambda: None
        self._root = self._look(root)
        self._sync_all()

    @contextmanager
    def recording(self, monkeypatch: pytest.MonkeyPatch, on_moment: Callable[[], None]) -> Iterator[None]:
        """`on_moment` is called before and after everything that is synced, and at the end."""
        self._on_moment = on_moment
        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", self._fsync)
            # one after the other: nobody explores beside the test, or after its end
            patched.setattr(whole_files, "_threads", lambda: SimpleNamespace(map=map))
            yield
            self.moment()

    def moment(self) -> None:
        """The power may fail here."""
        self._look(self.root)
        self._on_moment()

    def _fsync(self, opened: int) -> None:
        self.moment()
        self.syncs += 1
        node = self._nodes.get(os.fstat(opened).st_ino)
        if node is not None:
            node.synced, node.synced_names = node.content, dict(node.names)
        self._on_moment()

    def _sync_all(self) -> None:
        for node in self._nodes.values():
            node.synced, node.synced_names = node.content, dict(node.names)

    def _look(self, path: Path) -> int:
        found = path.lstat()
        node = self._nodes.get(found.st_ino)
        if node is None:
            node = _Node(os.open(path, os.O_RDONLY), stat.S_ISDIR(found.st_mode))
            self._nodes[found.st_ino] = node
        if node.is_folder:
            node.names = {below.name: self._look(below) for below in sorted(path.iterdir())}
        else:
            node.content = path.read_bytes()
        return found.st_ino

    def close(self) -> None:
        for node in self._nodes.values():
            os.close(node.held)

    # What may be left

    def states(self) -> Iterator[Tree]:
        changes = [change for number in self._nodes for change in self._changes(number)]
        contents = {number: kept for number in self._nodes if len(kept := self._contents(number)) > 1}
        choices = [(False, True) for _ in changes] + [tuple(range(len(kept))) for kept in contents.values()]
        for chosen in self._some(choices):
            applied = [change for change, wanted in zip(changes, chosen, strict=False) if wanted]
            held = {
                number: kept[which]
                for (number, kept), which in zip(contents.items(), chosen[len(changes) :], strict=True)
            }
            yield self._tree(self._root, applied, held)

    def _changes(self, folder: int) -> Iterator[tuple[int, dict[str, int | None]]]:
        """By what they are about, so that a rename is one."""
        node = self._nodes[folder]
        found: dict[int, dict[str, int | None]] = {}
        for name in sorted(node.names.keys() | node.synced_names.keys()):
            before, after = node.synced_names.get(name), node.names.get(name)
            if before != after:
                about = after if after is not None else before
                assert about is not None
                found.setdefault(about, {})[name] = after
        yield from ((folder, change) for change in found.values())

    def _contents(self, number: int) -> list[bytes]:
        node = self._nodes[number]
        if node.is_folder or node.synced == node.content:
            return [node.content]
        kept = [node.synced or b"", b"", node.content[: len(node.content) // 2], node.content]
        return list(dict.fromkeys(kept))

    def _some(self, choices: list[tuple[int, ...]]) -> Iterator[tuple[int, ...]]:
        count = 1
        for one in choices:
            count *= len(one)
        if count <= self._most_states:
            yield from itertools.product(*choices)
            return
        lowest, highest = tuple(one[0] for one in choices), tuple(one[-1] for one in choices)
        yield from (lowest, highest)
        for _ in range(self._most_states - 2):
            yield tuple(self._random.choice(one) for one in choices)

    def _tree(self, number: int, applied: list[tuple[int, dict[str, int | None]]], held: dict[int, bytes]) -> Tree:
        names: dict[str, int | None] = dict(self._nodes[number].synced_names)
        for folder, change in applied:
            if folder == number:
                names.update(change)
        found: dict[str, bytes | Tree] = {}
        for name, below in names.items():
            if below is not None:
                node = self._nodes[below]
                content = held.get(below, node.content)
                found[name] = self._tree(below, applied, held) if node.is_folder else content
        return found


def written(tree: Tree, folder: Path) -> Path:
    folder.mkdir()
    for name, found in tree.items():
        if isinstance(found, bytes):
            (folder / name).write_bytes(found)
        else:
            written(found, folder / name)
    return folder


def key_of(tree: Tree) -> int:
    return hash(tuple((name, f if isinstance(f, bytes) else key_of(f)) for name, f in sorted(tree.items())))
