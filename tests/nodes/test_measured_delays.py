"""Delays by TCP connections: robust to tries that went wrong, and real ones on this machine."""

from __future__ import annotations

import socket

import pytest

from elastream.errors import ElastreamError, InvalidInput
from elastream.nodes import Node
from elastream.nodes.measured_delays import Address, delays_from_here, pool_of_rows, robust_s


def test_the_lower_quartile_is_moved_neither_by_slow_tries_nor_by_one_that_was_too_quick() -> None:
    assert robust_s([0.020, 0.021, 1.020, 0.500, 0.022, 0.900, 0.021, 0.001, 0.030]) == 0.021
    assert robust_s([0.05]) == 0.05
    with pytest.raises(InvalidInput, match="at least one try"):
        robust_s([])


class Network:
    """Answers by a script for each host: seconds, or None where nobody answers."""

    def __init__(self, **answers: list[float | None]) -> None:
        self._answers = {host: iter(tries) for host, tries in answers.items()}

    def connect(self, address: Address, timeout_s: float) -> float:
        took_s = next(self._answers[address[0]])
        if took_s is None:
            raise TimeoutError(f"nobody answers at {address} for {timeout_s} s")
        return took_s


def test_a_node_that_answers_less_than_half_of_the_time_is_left_out() -> None:
    network = Network(near=[0.01, None, 0.01, 0.5], far=[None, None, 0.3, None])
    found = delays_from_here({"n": ("near", 1), "f": ("far", 1)}, tries=4, connect=network.connect)
    assert found == {"n": 0.01}


def test_on_this_machine_a_round_trip_is_short_and_a_closed_port_is_no_node() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_server(("127.0.0.1", 0)) as closed:
        here, nowhere = server.getsockname(), closed.getsockname()
        closed.close()
        found = delays_from_here({"here": here, "nowhere": nowhere}, tries=5)
    assert set(found) == {"here"}
    assert 0 < found["here"] < 2


def test_rows_become_a_pool_and_what_one_of_two_measured_counts_for_both() -> None:
    rows = {"a": {"b": 0.01, "c": 0.2}, "b": {"a": 0.02}, "c": {"b": 0.3}}
    pool = pool_of_rows([Node(name=name) for name in "abc"], rows)
    assert pool.largest_delay_s(("a", "b")) == 0.02
    assert pool.largest_delay_s(("b", "c")) == 0.3


def test_rows_that_name_unknown_nodes_or_leave_a_pair_out_are_refused() -> None:
    nodes = [Node(name=name) for name in "abc"]
    with pytest.raises(InvalidInput, match="unknown node 'd'"):
        pool_of_rows(nodes, {"a": {"d": 0.1}})
    with pytest.raises(ElastreamError, match="neither of 'a' and 'c' reached the other"):
        pool_of_rows(nodes, {"a": {"b": 0.1}, "b": {"c": 0.1}})
