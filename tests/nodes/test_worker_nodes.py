"""The file of `elastream run --nodes`: what it says, what it leaves to be chosen, what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from elastream.errors import InvalidInput
from elastream.nodes.files import read_worker_nodes

TABLE = "names: [a, b]\ndelays: [[0, 20 ms], [20 ms, 0]]\n"


def write(folder: Path, text: str) -> Path:
    path = folder / "nodes.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_on_this_machine_every_node_has_an_address_of_its_own_and_delays_are_emulated(tmp_path: Path) -> None:
    nodes = read_worker_nodes(write(tmp_path, TABLE))
    assert nodes.hosts == {"a": "127.0.1.1", "b": "127.0.1.2"}
    assert nodes.pool.largest_delay_s(("a", "b")) == 0.02
    assert nodes.records_per_fetch == 100
    assert nodes.command("a", master="m", cores=1, memory="1g") is None


def test_workers_elsewhere_are_started_by_a_command_and_their_delays_are_real(tmp_path: Path) -> None:
    text = "start: ssh {host} 'start worker' {master} {cores} {memory} --name={node}\n"
    nodes = read_worker_nodes(write(tmp_path, f"{TABLE}hosts: {{a: one, b: two}}\n{text}"))
    assert nodes.command("b", master="spark://m:1", cores=2, memory="1g") == (
        *("ssh", "two", "start worker", "spark://m:1", "2", "1g", "--name=b"),
    )
    assert nodes.records_per_fetch == 0


def test_the_example_is_one() -> None:
    nodes = read_worker_nodes(Path(__file__).parents[2] / "examples" / "nodes.yaml")
    assert (len(nodes.pool.names), nodes.records_per_fetch) == (6, 20)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("hosts: {a: one}", "hosts: 'b' has none; give every node one, or none of them"),
        ("hosts: {a: one, b: one}", "hosts: 2 nodes have the host 'one'"),
        ("hosts: {a: one, c: two}", "hosts: unknown node 'c'"),
        ("slots: {a: 2}", "slots: on Spark all nodes have the same number"),
        ("records_per_fetch: -1", "records_per_fetch must be at least 0, found -1"),
        ("start: ssh {hots}", "start: a command with .* was expected, found 'hots' in it"),
        ("delay: 1", "unknown key 'delay'"),
    ],
)
def test_what_cannot_be_is_refused_with_the_file_and_the_place(tmp_path: Path, more: str, message: str) -> None:
    path = write(tmp_path, f"{TABLE}{more}\n")
    with pytest.raises(InvalidInput, match=rf"nodes\.yaml: {message}"):
        read_worker_nodes(path)


@pytest.mark.parametrize("text", ["names: []\ndelays: []\n", "- a\n"])
def test_a_file_without_nodes(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidInput, match=r"nodes\.yaml: "):
        read_worker_nodes(write(tmp_path, text))
