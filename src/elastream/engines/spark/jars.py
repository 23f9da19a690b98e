"""Jars that are not part of Spark: fetched from Maven Central into a cache outside of the project.

A lock file names those that belong together, one in a line: what for, coordinates, bytes, SHA-256. A jar is
written beside its place and renamed into it when it is whole and right, so a fetch that was cut off goes on with
those that are missing.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from elastream.errors import ElastreamError
from elastream.whole_files import write_whole

REPOSITORY_VARIABLE = "ELASTREAM_MAVEN_REPOSITORY"
_MAVEN_CENTRAL = "https://repo1.maven.org/maven2"
_AT_ONCE = 8
_TRIES = 3
_TIMEOUT_S = 30.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Jar:
    use: str
    group: str
    artifact: str
    version: str
    size: int
    sha256: str

    @property
    def file(self) -> str:
        return f"{self.artifact}-{self.version}.jar"

    @property
    def location(self) -> str:
        """In a Maven repository."""
        return f"{self.group.replace('.', '/')}/{self.artifact}/{self.version}/{self.file}"


@dataclass(frozen=True, kw_only=True, slots=True)
class JarSet:
    """Those of one lock file."""

    name: str
    """Of their folder in the cache, with a version: those of another version are others."""
    jars: tuple[Jar, ...]
    fetched_by: str
    """What to do where some are missing, for an error."""

    @property
    def folder(self) -> Path:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        return Path(base) / "elastream" / self.name

    def missing(self) -> list[Jar]:
        """By size, which is quick; `paths` looks at what is in them."""
        return [jar for jar in self.jars if not _is_there(self.folder / jar.file, jar)]

    def paths(self, use: str) -> list[Path]:
        """Of a use; an error that says how to get them where one is missing."""
        missing = [jar.file for jar in self.missing() if jar.use == use]
        if missing:
            others = f" and {len(missing) - 1} others" if len(missing) > 1 else ""
            raise ElastreamError(f"{self.folder}: {missing[0]}{others} missing: {self.fetched_by} brings them")
        found = [jar for jar in self.jars if jar.use == use]
        for jar in found:
            self._check(jar)
        return [self.folder / jar.file for jar in found]

    def _check(self, jar: Jar) -> None:
        """It is about to be run: that it was right when it was fetched does not say that it still is."""
        path = self.folder / jar.file
        found = path.stat()
        if _sha256(path, found.st_mtime_ns, found.st_size) != jar.sha256:
            raise ElastreamError(
                f"{path}: not the jar that the lock file names, and not run: delete it, and {self.fetched_by} "
                "brings it again"
            )

    def fetch(self, *, on_progress: Callable[[str, float], None] = lambda *_: None) -> int:
        """Bring those that are missing, several at once; how many that were."""
        folder, missing = self.folder, self.missing()
        total, done = sum(jar.size for jar in missing), 0
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ElastreamError(f"{folder}: cannot be written: {error.strerror}") from None
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            fetches = {pool.submit(_fetch, jar, folder): jar for jar in missing}
            try:
                for fetch in as_completed(fetches):
                    fetch.result()
                    done += fetches[fetch].size
                    on_progress(fetches[fetch].file, done / total)
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
        return len(missing)


def read_lock(text: str) -> tuple[Jar, ...]:
    return tuple(_jar(line) for line in text.splitlines() if line and not line.startswith("#"))


def _fetch(jar: Jar, folder: Path) -> None:
    repository = os.environ.get(REPOSITORY_VARIABLE, _MAVEN_CENTRAL).rstrip("/")
    address = f"{repository}/{jar.location}"
    for attempt in range(_TRIES):
        try:
            content = _get(address)
            break
        except (OSError, http.client.HTTPException) as error:
            refused = isinstance(error, urllib.error.HTTPError) and error.code < 500
            if refused or attempt == _TRIES - 1:
                raise ElastreamError(f"{address}: cannot be fetched: {error}") from None
            time.sleep(2.0**attempt)
    found = hashlib.sha256(content).hexdigest()
    if found != jar.sha256:
        raise ElastreamError(f"{address}: not the jar that the lock file names: its SHA-256 is {found}")
    try:
        write_whole(folder / jar.file, content)
    except OSError as error:
        raise ElastreamError(f"{folder}: cannot be written: {error.strerror}") from None


def _get(address: str) -> bytes:
    with urllib.request.urlopen(address, timeout=_TIMEOUT_S) as answer:
        content: bytes = answer.read()
    return content


def _is_there(path: Path, jar: Jar) -> bool:
    return path.is_file() and path.stat().st_size == jar.size


@cache
def _sha256(path: Path, written_ns: int, size: int) -> str:
    """Once for each state of a file: brokers and sessions of a process use the same ones."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _jar(line: str) -> Jar:
    use, coordinates, size, sha256 = line.split()
    group, artifact, version = coordinates.split(":")
    return Jar(use=use, group=group, artifact=artifact, version=version, size=int(size), sha256=sha256)
