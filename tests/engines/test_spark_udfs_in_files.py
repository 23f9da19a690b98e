"""Functions with types in DDL at the top of a pipeline file, which is read before there is a session."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark import SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DecimalType, IntegerType, MapType, StringType, StructField, StructType
from typer.testing import CliRunner

from elastream.cli import app
from elastream.engines.spark.ddl import parse_ddl
from elastream.engines.spark.run import read_pipeline
from elastream.errors import InvalidInput

_TOP = """
import pandas as pd
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from elastream import Pipeline

pipeline = Pipeline("bids")
pipeline.feed("bids", schema="bidder bigint")
"""
_END = """

@pipeline.sink(reads="bids")
def forget(batch, batch_id): ...
"""
_UDFS = """
@F.pandas_udf("string")
def score(bidder: pd.Series) -> pd.Series:
    return bidder.astype(str)

@F.udf("struct<name: string, size: int>")
def named(bidder):
    return ("x", bidder)

plain = F.udf(lambda bidder: bidder, "bigint")
SCHEMA = StructType.fromDDL("name string, size int")
"""


@pytest.fixture(autouse=True)
def no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests of this process may have one."""
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)


def written(folder: Path, body: str) -> Path:
    file = folder / "job.py"
    file.write_text(_TOP + body + _END, encoding="utf-8")
    return file


def test_functions_with_types_in_ddl_are_read_without_a_session(tmp_path: Path) -> None:
    assert read_pipeline(written(tmp_path, _UDFS)).pipeline.name == "bids"
    shown = CliRunner().invoke(app, ["show", str(tmp_path / "job.py")])
    assert shown.exit_code == 0, shown.output


def test_outside_of_a_file_spark_says_what_it_always_did(tmp_path: Path) -> None:
    read_pipeline(written(tmp_path, _UDFS))
    with pytest.raises(PySparkRuntimeError, match="SESSION_OR_CONTEXT_NOT_EXISTS"):
        F.udf(lambda bidder: bidder, "bigint")


@pytest.mark.parametrize(
    "line", ['KEY = F.col("bidder")', 'KEY = F.window("at", "1 minute")', 'KEY = F.expr("a")']
)
def test_what_does_need_the_session_is_named_with_its_line(tmp_path: Path, line: str) -> None:
    file = written(tmp_path, line)
    number = file.read_text(encoding="utf-8").splitlines().index(line) + 1
    with pytest.raises(InvalidInput) as error:
        read_pipeline(file)
    assert str(error.value).startswith(f"{file}:{number}: this needs Spark's session")
    assert "move it into the function" in str(error.value)


def test_any_other_error_is_named_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"job\.py:10: NameError: name 'udf' is not defined$"):
        read_pipeline(written(tmp_path, 'x = udf("string")'))


def test_a_type_that_is_none_is_named_with_its_line(tmp_path: Path) -> None:
    message = (
        r"job\.py:10: a type in Spark's DDL was expected, found 'strin' \(did you mean 'string'\?\).*StringType"
    )
    with pytest.raises(InvalidInput, match=message):
        read_pipeline(written(tmp_path, 'x = F.udf(lambda a: a, "strin")'))


def test_the_line_is_named_where_the_file_is_given_by_a_relative_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, 'x = udf("string")')
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    with pytest.raises(InvalidInput, match=r"^\.\./job\.py:10: NameError"):
        read_pipeline(Path("../job.py"))


def test_types_in_ddl() -> None:
    assert parse_ddl(" INT ") == IntegerType()
    assert parse_ddl("decimal") == DecimalType(10, 0)
    assert parse_ddl("decimal( 16 , 8 )") == DecimalType(16, 8)
    assert parse_ddl("array<map<string,int>>") == ArrayType(MapType(StringType(), IntegerType()))
    assert parse_ddl("`a b`: string not null, size INT COMMENT 'in m'") == StructType(
        [StructField("a b", StringType(), False), StructField("size", IntegerType(), True, {"comment": "in m"})]
    )
    assert parse_ddl("date date") == parse_ddl("struct<date: date>")


@pytest.mark.parametrize(
    "text", ["", "blabla", "a: int,", "array<int", "map<int, boolean>>", "a int b int", "int not"]
)
def test_what_is_no_type_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="a type in Spark's DDL was expected"):
        parse_ddl(text)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("strng", "found 'strng' (did you mean 'string'?)"),
        (
            "array<strng>",
            "'array<strng>': a type in Spark's DDL was expected, found 'strng' (did you mean 'string'?)",
        ),
        ("user string, size itn", "found 'itn' (did you mean 'int'?)"),
        ("array<int", "'array<int': a type in Spark's DDL was expected, which it is not from its end on"),
    ],
)
def test_a_misspelt_type_is_told_as_what_was_meant(text: str, found: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(found)):
        parse_ddl(text)
