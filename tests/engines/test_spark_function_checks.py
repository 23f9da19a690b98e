"""Mistakes in the functions of a pipeline that are told without Spark, and what is left to Spark to tell."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest

from elastream.engines.spark.function_checks import check_functions
from elastream.engines.spark.pipeline import Pipeline
from elastream.engines.spark.run import read_pipeline
from elastream.errors import InvalidInput

TABLE: Any = None


def pipeline_of(function: Any, **options: Any) -> Pipeline:
    pipeline = Pipeline("p")
    pipeline.feed("views", schema="id bigint")
    pipeline.feed("clicks", schema="id bigint")
    pipeline.operator(**({"reads": "views"} | options))(function)
    return pipeline


def refused(pipeline: Pipeline) -> str:
    with pytest.raises(InvalidInput) as error:
        check_functions(pipeline)
    return str(error.value)


# parameters


def test_an_operator_takes_what_it_reads() -> None:
    def pages(views: Any, extra: int) -> Any:
        return views.select(extra)

    said = refused(pipeline_of(pages))
    assert said == "'pages' takes (views, extra), and is given a DataFrame for each name that it reads: (views)"


def test_an_operator_that_takes_too_little() -> None:
    def pages(views: Any) -> Any:
        return views

    assert "'pages' takes (views), and is given" in refused(pipeline_of(pages, reads=["views", "clicks"]))


def test_parameters_with_defaults_and_any_number_of_them_are_fine() -> None:
    def pages(views: Any, limit: int = 3) -> Any:
        return views.where(limit)

    def both(*inputs: Any) -> Any:
        return inputs[0].union(inputs[1])

    check_functions(pipeline_of(pages))
    check_functions(pipeline_of(both, reads=["views", "clicks"]))


def test_what_a_decorator_adds_is_its_own_affair() -> None:
    def configured(function: Any) -> Any:
        @functools.wraps(function)
        def with_limit(views: Any) -> Any:
            function(views, 3)
            return views

        return with_limit

    @configured
    def pages(views: Any, limit: int) -> None:
        views.groupBy(limit).count()

    check_functions(pipeline_of(pages))


def test_a_source_takes_the_session_and_a_sink_a_batch_with_its_id() -> None:
    pipeline = Pipeline("p")

    @pipeline.source
    def views() -> Any:
        return TABLE

    assert refused(pipeline) == "'views' takes (), and is given the session: (spark)"

    pipeline = Pipeline("p")
    pipeline.feed("views", schema="id bigint")

    @pipeline.sink(reads="views")
    def printed(batch: Any) -> None: ...

    assert "'printed' takes (batch), and is given each batch with its id" in refused(pipeline)


def test_a_sink_may_ask_for_what_no_other_batch_has() -> None:
    pipeline = Pipeline("p")
    pipeline.feed("views", schema="id bigint")

    @pipeline.sink(reads="views")
    def printed(batch: Any, batch_id: int, *, unique_id: str) -> None: ...

    check_functions(pipeline)


# what they return


def test_an_operator_without_a_return() -> None:
    def pages(views: Any) -> Any:
        def inner() -> int:
            return 3

        views.select(inner())

    assert refused(pipeline_of(pages)) == (
        "'pages' returns nothing: it must return a DataFrame (is a return missing?)"
    )


def test_a_function_that_is_not_written_yet() -> None:
    def pages(views: Any) -> Any: ...

    assert "'pages' returns nothing" in refused(pipeline_of(pages))


def test_a_return_in_a_branch_counts() -> None:
    def pages(views: Any) -> Any:
        if TABLE:
            return views
        raise NotImplementedError

    check_functions(pipeline_of(pages))


# state


def grouped(views: Any) -> Any:
    recent = views.withWatermark("at", "1 minute").where("id > 3")
    return recent.groupBy("id").count()


def without_duplicates(views: Any) -> Any:
    return views.dropDuplicates(["id"])


def joined(views: Any, clicks: Any) -> Any:
    clicks = clicks.withColumnRenamed("id", "other")
    return views.join(clicks, "id")


@pytest.mark.parametrize(
    ("function", "method"),
    [(grouped, "groupBy"), (without_duplicates, "dropDuplicates"), (joined, "join")],
)
def test_state_that_can_be_seen_must_be_declared(function: Any, method: str) -> None:
    reads = ["views", "clicks"] if function is joined else ["views"]
    line = function.__code__.co_firstlineno + (1 if function is without_duplicates else 2)
    said = f"{function.__name__!r} keeps state ({method} in line {line}): declare its state_partitions"
    assert refused(pipeline_of(function, reads=reads)) == f"{said}, for example 12"
    check_functions(pipeline_of(function, reads=reads, state_partitions=4))


def join_with_a_table(views: Any) -> Any:
    table = views.sparkSession.read.parquet("names").groupBy("id").count()
    return views.join(table, "id")


def join_with_a_default(views: Any, table: Any = TABLE) -> Any:
    return views.join(table, "id")


def in_a_branch(views: Any) -> Any:
    if TABLE:
        return views
    return views.groupBy("id").count()


def of_another_name(views: Any) -> Any:
    views = TABLE.select("id")
    return views.groupBy("id").count()


@pytest.mark.parametrize("function", [join_with_a_table, join_with_a_default, in_a_branch, of_another_name])
def test_what_is_not_certain_is_left_to_spark(function: Any) -> None:
    check_functions(pipeline_of(function))


def test_a_file_is_refused_with_its_name(tmp_path: Path) -> None:
    path = tmp_path / "job.py"
    path.write_text(
        "from elastream import Pipeline\npipeline = Pipeline('p')\npipeline.feed('views', schema='id bigint')\n"
        "@pipeline.operator(reads='views')\ndef pages(views):\n    views.select('id')\n"
    )
    with pytest.raises(InvalidInput, match=r"job\.py: 'pages' returns nothing"):
        read_pipeline(path)
