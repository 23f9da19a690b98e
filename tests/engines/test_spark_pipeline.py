"""How a pipeline is declared: what it is before anything runs, and what is refused then."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from elastream.dataflow import Dataflow, Operator
from elastream.engines.spark.pipeline import Kind, Pipeline
from elastream.errors import InvalidInput


def function(*inputs: Any) -> Any:
    raise AssertionError("nothing runs before an engine takes it")


def named(name: str) -> Any:
    def step(*inputs: Any) -> Any:
        return function(*inputs)

    step.__name__ = name
    return step


@pytest.fixture
def pipeline() -> Pipeline:
    """sentences → words → counts → kept, and words → printed."""
    pipeline = Pipeline("wordcount")
    pipeline.feed("sentences", schema="line string")
    pipeline.operator(reads="sentences", parallelism=3, max_parallelism=8)(named("words"))
    pipeline.operator(reads="words", state_partitions=12, output_mode="update")(named("counts"))
    pipeline.keep("kept", reads="counts", folder=Path("results"), parallelism=2)
    pipeline.sink(reads="words")(named("printed"))
    return pipeline


# --- the graph and the first plan -------------------------------------------------------------------------------


def test_the_graph_is_known_before_anything_runs(pipeline: Pipeline) -> None:
    assert pipeline.graph() == Dataflow.of(
        [
            Operator(name="sentences", source=True),
            Operator(name="words", max_parallelism=8),
            Operator(name="counts", state_partitions=12),
            Operator(name="kept"),
            Operator(name="printed"),
        ],
        [("sentences", "words"), ("words", "counts"), ("counts", "kept"), ("words", "printed")],
    )


def test_the_first_plan_is_the_declared_one(pipeline: Pipeline) -> None:
    assert pipeline.plan() == {"words": 3, "counts": 1, "kept": 2, "printed": 1}


def test_the_first_plan_is_within_the_bounds() -> None:
    pipeline = Pipeline("p")
    pipeline.feed("numbers", schema="n bigint")
    pipeline.operator(reads="numbers", parallelism=9, max_parallelism=4)(named("too_many"))
    pipeline.operator(reads="numbers", parallelism=1, min_parallelism=2)(named("too_few"))
    pipeline.operator(reads="numbers", parallelism=99, state_partitions=12)(named("stateful"))
    pipeline.operator(reads="numbers", parallelism=20, state_partitions=12, max_parallelism=48)(named("moves"))
    assert pipeline.plan() == {"too_many": 4, "too_few": 2, "stateful": 12, "moves": 12}


@pytest.mark.parametrize(("max_parallelism", "most"), [(None, 12), (6, 6), (12, 12), (40, 40)])
def test_state_may_be_moved_where_more_instances_are_allowed_than_it_has_partitions(
    max_parallelism: int | None, most: int
) -> None:
    pipeline = Pipeline("p")
    pipeline.feed("numbers", schema="n bigint")
    pipeline.operator(reads="numbers", state_partitions=12, max_parallelism=max_parallelism)(named("stateful"))
    operator = pipeline.graph()["stateful"]
    assert operator.most == most
    assert operator.movable_state == (most > 12)


def test_it_knows_who_reads_what(pipeline: Pipeline) -> None:
    assert pipeline.readers("words") == ("counts", "printed")
    assert pipeline.readers("kept") == ()


def test_a_join_reads_several_in_the_order_of_its_arguments() -> None:
    pipeline = Pipeline("p")
    pipeline.source(named("orders"))
    pipeline.feed("payments", schema="id bigint")
    pipeline.operator(reads=["payments", "orders"], state_partitions=4)(named("paid"))
    assert pipeline["paid"].reads == ("payments", "orders")
    assert pipeline.graph().upstream("paid") == ("payments", "orders")


def test_each_step_is_of_its_kind(pipeline: Pipeline) -> None:
    assert {step.name: step.kind for step in pipeline.steps} == {
        "sentences": Kind.FEED,
        "words": Kind.OPERATOR,
        "counts": Kind.OPERATOR,
        "kept": Kind.SINK,
        "printed": Kind.SINK,
    }


def test_a_decorated_function_is_still_itself() -> None:
    pipeline = Pipeline("p")
    source, step, sink = named("numbers"), named("step"), named("sink")
    assert pipeline.source(source) is source
    assert pipeline.operator(reads="numbers")(step) is step
    assert pipeline.sink(reads="step")(sink) is sink


# --- what is refused --------------------------------------------------------------------------------------------


def test_an_unknown_name_is_told_with_the_nearest_known(pipeline: Pipeline) -> None:
    pipeline.operator(reads="wrods")(named("lengths"))
    with pytest.raises(
        InvalidInput, match=r"pipeline 'wordcount': .*unknown operator 'wrods' \(did you mean 'words'"
    ):
        pipeline.graph()


def test_a_cycle_is_refused() -> None:
    pipeline = Pipeline("p")
    pipeline.feed("numbers", schema="n bigint")
    pipeline.operator(reads=["numbers", "second"])(named("first"))
    pipeline.operator(reads="first")(named("second"))
    with pytest.raises(InvalidInput, match=r"pipeline 'p': the edges form a cycle: .*first → second"):
        pipeline.graph()


def test_a_sink_has_no_readers(pipeline: Pipeline) -> None:
    pipeline.operator(reads="kept")(named("after"))
    with pytest.raises(InvalidInput, match="'after' reads 'kept', which is a sink"):
        pipeline.graph()


def test_a_pipeline_without_a_source_is_refused() -> None:
    with pytest.raises(InvalidInput, match="pipeline 'empty'"):
        Pipeline("empty").graph()


def test_an_operator_reads_something() -> None:
    pipeline = Pipeline("p")
    pipeline.feed("numbers", schema="n bigint")
    pipeline.operator(reads=[])(named("alone"))
    with pytest.raises(InvalidInput, match="operator 'alone' has no input"):
        pipeline.graph()


def test_reading_a_step_twice_is_refused() -> None:
    pipeline = Pipeline("p")
    pipeline.feed("numbers", schema="n bigint")
    pipeline.operator(reads=["numbers", "numbers"], state_partitions=4)(named("pairs"))
    with pytest.raises(InvalidInput, match="edge 'numbers' → 'pairs' is given twice"):
        pipeline.graph()


def test_two_steps_with_one_name_are_refused(pipeline: Pipeline) -> None:
    with pytest.raises(InvalidInput, match="pipeline 'wordcount': two steps have the name 'words'"):
        pipeline.feed("words", schema="word string")


@pytest.mark.parametrize("name", ["", "two words", "a/b", "1st", "<lambda>"])
def test_a_step_has_a_name_like_a_function(name: str) -> None:
    with pytest.raises(InvalidInput, match="is not a name"):
        Pipeline("p").feed(name, schema="n bigint")


@pytest.mark.parametrize("name", ["", "a/b"])
def test_a_pipeline_has_a_name_that_can_be_a_folder(name: str) -> None:
    with pytest.raises(InvalidInput, match="a pipeline has a name"):
        Pipeline(name)


@pytest.mark.parametrize("mode", ["complete", "Update", ""])
def test_an_output_mode_that_no_channel_can_carry_is_refused(mode: str) -> None:
    with pytest.raises(InvalidInput, match=f"output_mode is one of append, update, found '{mode}'"):
        Pipeline("p").operator(reads="words", output_mode=mode)


def test_bounds_that_contradict_each_other_are_refused(pipeline: Pipeline) -> None:
    pipeline.operator(reads="words", min_parallelism=4, max_parallelism=2)(named("lengths"))
    with pytest.raises(InvalidInput, match=r"pipeline 'wordcount': operator 'lengths': max_parallelism \(2\)"):
        pipeline.graph()
