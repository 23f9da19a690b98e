"""The broker of `elastream kafka start`: it says when it is ready, ends with its parent, keeps its records."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from running import wait_until

from elastream.engines.spark.channels.kafka import KafkaChannel
from elastream.engines.spark.kafka.broker import HOST, Broker
from elastream.engines.spark.kafka.topic import Topic
from elastream.errors import ElastreamError


def is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


def test_it_ends_with_its_parent_and_has_its_records_when_it_is_started_again(
    broker: Broker, tmp_path: Path
) -> None:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-c", "from elastream.cli import main; main()", "kafka", "start", "--json"]
    command += ["--port", str(port), "--folder", str(tmp_path / "kafka")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        try:
            assert parent.stdout is not None
            ready = json.loads(parent.stdout.readline())
            assert ready == {"servers": f"{HOST}:{port}", "folder": str(tmp_path / "kafka")}
            with pytest.raises(ElastreamError, match=f"port {port} is in use"):
                Broker(tmp_path / "another", port=port).start()
            channel = KafkaChannel(tmp_path, Topic(servers=ready["servers"], name="kept", partitions=1))
            channel.create()
            channel._send([b"a", b"b"])
        finally:
            parent.send_signal(signal.SIGKILL)
    wait_until(lambda: not is_listening(port), "the broker has ended with its parent")
    with Broker(tmp_path / "kafka", port=port):
        assert channel.topic.ends() == {0: 2}
