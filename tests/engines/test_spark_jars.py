"""Fetching jars: each is what the lock says, whole or not there, and a fetch goes on where it was cut off."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from elastream.engines.spark.jars import REPOSITORY_VARIABLE, Jar, JarSet
from elastream.engines.spark.kafka.jars import JarUse, kafka_jars
from elastream.errors import ElastreamError


class Repository:
    """A Maven repository of three jars on loopback."""

    def __init__(self) -> None:
        self.contents = {f"one/two/jar{n}/1.0/jar{n}-1.0.jar": bytes([n]) * (n + 1) for n in range(3)}
        self.served: list[str] = []
        repository = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                content = repository.contents.get(self.path.lstrip("/"))
                repository.served.append(self.path)
                self.send_response(200 if content is not None else 404)
                self.end_headers()
                self.wfile.write(content or b"")

            def log_message(self, *_: object) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        jars = tuple(
            Jar(
                use="one" if n else "another",
                group="one.two",
                artifact=f"jar{n}",
                version="1.0",
                size=len(content),
                sha256=hashlib.sha256(content).hexdigest(),
            )
            for n, content in enumerate(self.contents.values())
        )
        self.jars = JarSet(name="some-1.0", jars=jars, fetched_by="`fetch`")


@pytest.fixture
def repository(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Repository]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found = Repository()
    thread = threading.Thread(target=found.server.serve_forever)
    thread.start()
    monkeypatch.setenv(REPOSITORY_VARIABLE, f"http://127.0.0.1:{found.server.server_port}/")
    yield found
    found.server.shutdown()
    thread.join()
    found.server.server_close()


def test_what_is_missing_is_fetched_and_nothing_twice(repository: Repository) -> None:
    shares: list[float] = []
    jars = repository.jars
    assert jars.fetch(on_progress=lambda _, share: shares.append(share)) == 3
    assert shares[-1] == 1.0
    assert jars.missing() == []
    (jars.folder / "jar1-1.0.jar").unlink()
    (jars.folder / "jar2-1.0.jar").write_bytes(b"")  # not whole, whoever put it there
    assert jars.fetch() == 2
    assert jars.fetch() == 0
    assert len(repository.served) == 5
    assert (jars.folder / "jar2-1.0.jar").read_bytes() == b"\x02\x02\x02"
    assert [path.name for path in jars.paths("one")] == ["jar1-1.0.jar", "jar2-1.0.jar"]


def test_another_jar_under_the_same_name_is_not_kept(repository: Repository) -> None:
    repository.contents["one/two/jar1/1.0/jar1-1.0.jar"] = b"xx"
    with pytest.raises(ElastreamError, match=r"jar1-1.0.jar: not the jar that the lock file names"):
        repository.jars.fetch()
    assert not (repository.jars.folder / "jar1-1.0.jar").exists()


def test_a_jar_that_was_changed_since_is_not_run(repository: Repository) -> None:
    repository.jars.fetch()
    path = repository.jars.folder / "jar2-1.0.jar"
    assert path in repository.jars.paths("one")
    path.write_bytes(b"xyz")
    assert repository.jars.missing() == [], "it has the right size"
    with pytest.raises(ElastreamError, match=r"jar2-1.0.jar: not the jar that the lock file names, and not run"):
        repository.jars.paths("one")


def test_a_jar_that_is_not_there(repository: Repository) -> None:
    del repository.contents["one/two/jar0/1.0/jar0-1.0.jar"]
    with pytest.raises(ElastreamError, match=r"jar0-1.0.jar: cannot be fetched: HTTP Error 404"):
        repository.jars.fetch()


def test_jars_that_were_not_fetched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(ElastreamError, match=r"missing: `elastream kafka fetch` brings them"):
        kafka_jars().paths(JarUse.BROKER)
    assert kafka_jars().folder.parent == tmp_path / "elastream"


def test_the_lock_of_kafka_names_each_file_once_for_a_use() -> None:
    found = kafka_jars().jars
    assert len({(jar.use, jar.file) for jar in found}) == len(found)
    assert {jar.use for jar in found} == set(JarUse)
    assert all(len(jar.sha256) == 64 and jar.size > 0 for jar in found)
