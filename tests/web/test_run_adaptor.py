"""A master's adaptor to a run elsewhere: the four calls over REST, against a real server and manager."""

from __future__ import annotations

import pytest
from serving import TOKEN, Served, eventually

from elastream.agents.run_adaptor import RunAdaptor
from elastream.errors import ElastreamError


def measured(run: Served) -> Served:
    run.feed.snapshot(run.engine.measure())
    eventually("it was measured", lambda: run.feed.latest is not None)
    return run


def test_a_run_is_scaled_and_its_sizes_are_those_in_force(run: Served) -> None:
    run.engine.wait(10)
    adaptor = RunAdaptor(f"{measured(run).server.url}#token=of-the-page", TOKEN)
    assert adaptor.operators() == ("words", "counts"), "neither a source nor a sink that is fixed"
    assert adaptor.current_size("counts") == 1

    adaptor.set_size("counts", 3)
    assert run.engine.plan()["counts"] == 3, "it returns when it is done"
    adaptor.operators()
    assert adaptor.current_size("counts") == 3, "although no window has ended since"
    adaptor.set_size("counts", 3)
    assert len(run.feed.history.decisions()) == 1, "asking twice changes nothing"

    run.engine.wait(10)
    measured(run)
    anew = RunAdaptor(run.server.url, TOKEN)
    anew.operators()
    assert (anew.current_size("counts"), anew.original_size("counts")) == (3, 1)


def test_of_two_masters_in_different_folders_each_says_that_someone_else_scales(
    run: Served, caplog: pytest.LogCaptureFixture
) -> None:
    run.engine.wait(10)
    url = measured(run).server.url
    first, second = RunAdaptor(url, TOKEN), RunAdaptor(url, TOKEN)
    for each in (first, second):
        each.operators()
    first.set_size("counts", 3)
    first.operators()
    assert caplog.messages == [], "what one did itself"
    second.operators()
    second.operators()
    assert [message.partition("/api/v1: ")[2] for message in caplog.messages] == [
        "someone else scales it, too: counts 1 → 3 (another master, the run itself, or a person)"
    ]


@pytest.mark.parametrize(
    ("operator", "size", "token", "why"),
    [
        ("counts", 2, "wrong", "actions need the token"),
        ("cuonts", 2, TOKEN, "cuonts"),
        ("counts", 0, TOKEN, "parallelism"),
    ],
)
def test_what_a_run_refuses_is_said_as_it_says_it(
    run: Served, operator: str, size: int, token: str, why: str
) -> None:
    run.engine.wait(10)
    with pytest.raises(ElastreamError, match=why):
        RunAdaptor(measured(run).server.url, token).set_size(operator, size)


def test_before_anything_was_measured_nothing_is_known(run: Served) -> None:
    with pytest.raises(ElastreamError, match="nothing was measured yet"):
        RunAdaptor(run.server.url, TOKEN).operators()


def test_agents_read_what_rules_look_at_of_an_instance_on_average(run: Served) -> None:
    run.engine.wait(10)
    measured(run)
    found = run.client.get("api/v1/operators").json()
    reading = run.feed.latest.measurements["counts"].totals.mean  # type: ignore[union-attr]
    assert found["counts"]["input_rate"] == reading.records_in / reading.window_s
    assert found["counts"]["utilization"] == pytest.approx(100 * reading.useful_s / reading.window_s)
    assert "open_files" not in found["counts"], "only agents read it"
