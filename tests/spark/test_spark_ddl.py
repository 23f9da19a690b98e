"""Types in DDL, read without Spark (`ddl.py`) and by Spark: the same."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.errors import ParseException
from pyspark.sql import SparkSession
from pyspark.sql.types import DataType

from elastream.engines.spark.ddl import _DECIMAL, _SIMPLE, _WITH_LENGTH, parse_ddl
from elastream.errors import InvalidInput

_NAMES = st.sampled_from(["a", "Some_name", "`with space`", "`back``tick`", "date", "x1", "_x"])
_LEAVES = st.one_of(
    st.sampled_from([*_SIMPLE, *_DECIMAL]),
    st.sampled_from([f"{name}(20)" for name in (*_WITH_LENGTH, *_DECIMAL)]),
    st.sampled_from(["decimal( 12 , 3 )", "BigInt", " Double "]),
)
_AFTER = st.sampled_from(["", " not null", " NOT NULL", " comment 'in m'", ' not null COMMENT "x y"'])


def _fields(types: st.SearchStrategy[str]) -> st.SearchStrategy[list[str]]:
    one = st.builds(
        lambda name, sign, kind, after: f"{name}{sign}{kind}{after}",
        _NAMES,
        st.sampled_from([" ", ": ", ":"]),
        types,
        _AFTER,
    )
    return st.lists(one, min_size=1, max_size=3, unique_by=lambda text: text.split(" ")[0].split(":")[0].lower())


def _nested(types: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        types.map(lambda kind: f"array<{kind}>"),
        st.tuples(types, types).map(lambda pair: f"map<{pair[0]}, {pair[1]}>"),
        _fields(types).map(lambda fields: f"struct<{', '.join(fields)}>"),
    )


TYPES = st.recursive(_LEAVES, _nested, max_leaves=6)
TABLES = _fields(TYPES).map(", ".join)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.one_of(TYPES, TABLES))
def test_read_as_spark_does(spark: SparkSession, text: str) -> None:
    assert parse_ddl(text) == DataType.fromDDL(text)


@pytest.mark.parametrize(
    "text",
    [
        "blabla",
        "a: int,",
        "array<int",
        "map<int, boolean>>",
        "a int b int",
        "decimal(1,2,3)",
        "char",
        "'a' int",
    ],
)
def test_what_spark_refuses_is_refused(spark: SparkSession, text: str) -> None:
    with pytest.raises(ParseException):
        DataType.fromDDL(text)
    with pytest.raises(InvalidInput):
        parse_ddl(text)
