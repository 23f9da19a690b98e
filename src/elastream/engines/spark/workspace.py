"""The folder of a running pipeline: channels, checkpoints, controls, and what it all belongs to.

pipeline.json         the pipeline's name and the schemas of its steps
identity              what no other folder has: batches are numbered from 0 in each
lock, lock.jvm        held while a driver, and its JVM, run: checkpoints are not safe against a second writer
channels/NAME/        what a step puts out
checkpoints/NAME/     Spark's checkpoint of a step's query
state/NAME.json       how many partitions the state of a step is to have
watermarks/NAME.json  how far each input of a step was in event time
accounts/NAME.json    what Spark told of a step's batches, added up
control/NAME.json     parallelism and batch size of a step, read by its readers between two batches
aside/NAME/           records that a step cannot process, which its readers leave out
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from elastream.engines.spark.channels.aside import folder_beside
from elastream.engines.spark.channels.channel import DurableChannel
from elastream.engines.spark.channels.kinds import ChannelKind, Files, check_kind
from elastream.engines.spark.identity import identity_of, unique_batch
from elastream.engines.spark.local_paths import for_spark
from elastream.engines.spark.state_folder import StateFolder
from elastream.errors import ElastreamError, InvalidInput
from elastream.whole_files import make_folder, write_json

_LOCK = "lock"


class Workspace:
    def __init__(
        self, folder: Path, pipeline: str, channels: ChannelKind | None = None, *, state_url: str | None = None
    ) -> None:
        """`state_url` is a folder in another file system, where the state lies that is else in the checkpoints."""
        self.folder = folder
        self.pipeline = pipeline
        self.channels = channels or Files()
        self.state_folder = None
        if state_url is not None:
            self.state_folder = StateFolder(url=state_url, run=folder, pipeline=pipeline)
        self._lock: int | None = None

    def open(self) -> None:
        """Make the folders and take the lock; refuse a folder of another pipeline, or one that is in use.

        It does no harm a second time.
        """
        if self._lock is not None:
            return
        try:
            for name in ("channels", "checkpoints", "state", "watermarks", "accounts", "control"):
                make_folder(self.folder / name)
        except OSError as error:
            raise ElastreamError(f"{self.folder}: cannot be used: {error.strerror}") from None
        self._take_lock()
        try:
            self._check_owner()
            check_kind(self.folder / "channels", self.channels)
        except InvalidInput:
            self.close()
            raise

    def close(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def check_schemas(self, schemas: Mapping[str, str]) -> None:
        """Refuse a schema that changed since the checkpoint; remember those that are new."""
        known = self._read() or {"pipeline": self.pipeline, "schemas": {}}
        for name, schema in schemas.items():
            before = known["schemas"].get(name, schema)
            if before != schema:
                raise InvalidInput(
                    f"{self.folder}: what {name!r} puts out has changed since its checkpoint: it was {before}, "
                    f"now it is {schema}; choose another folder, or change it back"
                )
        known["schemas"].update(schemas)
        if self.state_folder:
            known["state_folder"] = self.state_folder.url
        write_json(self.folder / "pipeline.json", known)

    def channel(self, name: str) -> DurableChannel:
        return self.channels.channel(self.folder / "channels" / name, self.pipeline)

    def writer(self, name: str) -> str:
        """Whose batches a step writes, told to what outlives this folder; for who has opened it."""
        return f"{identity_of(self.folder)}/{name}"

    def unique_id(self, batch: int) -> str:
        """Of a batch, for sinks; for who has opened it."""
        return unique_batch(self.folder, batch)

    def checkpoint(self, name: str) -> Path:
        return self.folder / "checkpoints" / name

    def checkpoint_for_spark(self, name: str) -> str:
        return self.state_folder.checkpoint(name) if self.state_folder else for_spark(self.checkpoint(name))

    def state(self, name: str) -> Path:
        return self.folder / "state" / f"{name}.json"

    def watermarks(self, name: str) -> Path:
        return self.folder / "watermarks" / f"{name}.json"

    def ledger(self, name: str) -> Path:
        return self.folder / "accounts" / f"{name}.json"

    def control(self, name: str) -> Path:
        return self.folder / "control" / f"{name}.json"

    def aside(self, name: str) -> Path:
        return folder_beside(self.control(name))

    def _check_owner(self) -> None:
        known = self._read()
        if known is not None and known["pipeline"] != self.pipeline:
            raise InvalidInput(
                f"{self.folder}: holds the checkpoints of the pipeline {known['pipeline']!r}, not of "
                f"{self.pipeline!r}; choose another folder"
            )
        now = None if self.state_folder is None else self.state_folder.url
        if known is not None and known.get("state_folder") != now:
            raise InvalidInput(
                f"{self.folder}: its state lies {_where(known.get('state_folder'))}, and cannot go on "
                f"{_where(now)}; choose another folder, or begin anew"
            )

    def _read(self) -> dict[str, Any] | None:
        path = self.folder / "pipeline.json"
        if not path.exists():
            return None
        try:
            found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            raise InvalidInput(f"{path}: not a file of elastream's") from None
        return found

    def _take_lock(self) -> None:
        self._lock = _locked(self.folder)


def check_unused(folder: Path) -> None:
    """Before a folder is deleted: refuse where another process runs a pipeline in it."""
    if (folder / _LOCK).exists():
        os.close(_locked(folder))


def _where(state_url: str | None) -> str:
    return "in the folder itself" if state_url is None else f"in {state_url}"


def _locked(folder: Path) -> int:
    file = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        raise ElastreamError(f"{folder}: another process runs this pipeline here") from None
    return file
