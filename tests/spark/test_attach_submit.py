"""`elastream submit`: scripts run as they are, Spark's own examples among them."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyspark
import pytest

from elastream.engines.spark.channels.kafka import KafkaChannel
from elastream.engines.spark.kafka.broker import Broker
from elastream.engines.spark.kafka.jars import JarUse, kafka_jars
from elastream.engines.spark.kafka.topic import Topic

_EXAMPLES = Path(pyspark.__file__).parent / "examples" / "src" / "main" / "python" / "sql" / "streaming"
_PATIENCE_S = 900.0  # for a machine that does other things too
_COMMAND = [sys.executable, "-c", "from elastream.cli import main; main()", "submit"]


def environment(folder: Path, more: str = "") -> dict[str, str]:
    options = f"--master local[2] --driver-memory 600m --conf spark.ui.port=0 {more}"
    options += " --conf spark.sql.shuffle.partitions=2"
    return {
        **os.environ,
        "PYSPARK_SUBMIT_ARGS": f"{options} pyspark-shell",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONUNBUFFERED": "1",
    }


@contextmanager
def lines_served(*lines: str) -> Iterator[int]:
    """A server that sends these lines to whoever comes, again and again."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        over = threading.Event()

        def serve(client: socket.socket) -> None:
            with client:
                while not over.wait(0.1):
                    client.sendall("".join(f"{line}\n" for line in lines).encode())

        def accept() -> None:
            while True:
                try:
                    client, _ = server.accept()
                except OSError:
                    return
                threading.Thread(target=_quietly, args=(serve, client), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield server.getsockname()[1]
        over.set()


def _quietly(serve: Callable[[socket.socket], None], client: socket.socket) -> None:
    with suppress(OSError):  # whoever read has gone
        serve(client)


@pytest.mark.parametrize(
    ("example", "arguments"),
    [
        ("structured_network_wordcount.py", ()),
        ("structured_network_wordcount_windowed.py", ("20", "10")),
        # not structured_sessionization.py: Spark refuses its output mode, as it does without us
    ],
)
@pytest.mark.long
def test_examples_of_spark_run_as_they_are(tmp_path: Path, example: str, arguments: tuple[str, ...]) -> None:
    with lines_served("apache spark", "apache kafka") as port:
        printed = _printed_by(tmp_path, example, ("127.0.0.1", str(port), *arguments), environment(tmp_path))
    assert "Traceback" not in printed


@pytest.mark.long
def test_the_kafka_example_of_spark_runs_as_it_is(tmp_path: Path, broker: Broker) -> None:
    topic = Topic(servers=broker.servers, name="lines", partitions=2)
    topic.create()
    channel = KafkaChannel(tmp_path, topic)
    over = threading.Event()

    def send() -> None:
        while not over.wait(0.2):
            channel._send([b"apache spark", b"apache kafka"])

    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    jars = ",".join(map(str, kafka_jars().paths(JarUse.CONNECTOR)))
    arguments = (broker.servers, "subscribe", topic.name)
    with_kafka = environment(tmp_path, f"--conf spark.jars={jars}")
    printed = _printed_by(tmp_path, "structured_kafka_wordcount.py", arguments, with_kafka)
    assert "Traceback" not in printed
    over.set()
    sender.join(_PATIENCE_S)


def _printed_by(folder: Path, example: str, arguments: tuple[str, ...], environment: dict[str, str]) -> str:
    """Until its results are printed as ever, and elastream has sized it."""
    command = [*_COMMAND, "--recommend", "--set", "interval=2 s", "--folder", str(folder / "run")]
    printed = folder / "printed"
    with printed.open("w") as out:
        job = subprocess.Popen(
            [*command, str(_EXAMPLES / example), *arguments],
            stdout=out,
            stderr=subprocess.STDOUT,
            env=environment,
        )
        try:
            for word in ("apache", "spark", "kafka"):
                _until(lambda word=word: bool(re.search(rf"\| *{word} *\|", _text(printed))), job)  # type: ignore[misc]
            _until(lambda: '"proposed"' in _text(folder / "run" / "recording.jsonl"), job)
            return _text(printed)
        finally:
            job.send_signal(signal.SIGINT)
            job.wait(_PATIENCE_S)


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""


def _until(true: Callable[[], bool], job: subprocess.Popen[bytes]) -> None:
    deadline_s = time.monotonic() + _PATIENCE_S
    while not true():
        assert job.poll() is None, "the job ended"
        assert time.monotonic() < deadline_s, "it does not come"
        time.sleep(0.2)


@pytest.mark.parametrize(
    ("text", "status", "words"),
    [
        ("import sys; print(sys.argv[1:], __name__); sys.exit(7)", 7, "['--latency', 'x'] __main__"),
        ("raise KeyError('of the job')", 1, "KeyError: 'of the job'"),
        (
            "import no_such_module_of_the_job",
            1,
            "ModuleNotFoundError: No module named 'no_such_module_of_the_job'",
        ),
    ],
)
def test_what_the_script_is_given_and_how_it_ends_are_its_own(
    tmp_path: Path, text: str, status: int, words: str
) -> None:
    (tmp_path / "job.py").write_text(text)
    ended = subprocess.run(
        [*_COMMAND, str(tmp_path / "job.py"), "--latency", "x"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_PATIENCE_S,
    )
    assert ended.returncode == status, ended.stdout
    assert words in ended.stdout


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["nowhere.py"], "nowhere.py: no such file"),
        (["--latency", "0", __file__], "--latency must be above 0"),
        (
            ["--min-executors", "3", "--max-executors", "2", __file__],
            "max_executors must be at least min_executors",
        ),
    ],
)
def test_what_is_wrong_is_said_before_the_script_begins(options: list[str], words: str) -> None:
    ended = subprocess.run([*_COMMAND, *options], stderr=subprocess.PIPE, text=True, timeout=_PATIENCE_S, cwd="/")
    assert ended.returncode == 2
    assert words in " ".join(ended.stderr.split())
