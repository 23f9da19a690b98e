"""Records as JSON: what goes in comes out again, by Arrow's reader and by the slower one alike."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DayTimeIntervalType,
    IntegerType,
    MapType,
    StringType,
    StructField,
    StructType,
    VariantType,
)

from elastream.engines.spark.channels import json_records
from elastream.engines.spark.channels.json_records import check_schema, decode, encode
from elastream.errors import InvalidInput

TIME = pa.timestamp("us", "UTC")
LOCAL_TIME = pa.timestamp("us")
MOMENT = datetime(2026, 3, 29, 1, 30, 0, 123456, tzinfo=UTC)
DECIMAL = pa.decimal128(20, 3)

VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "long": (pa.int64(), [2**63 - 1, -(2**63), None]),
    "byte": (pa.int8(), [-3, None]),
    "double": (pa.float64(), [0.1, -0.0, 5e-324, 1.7976931348623157e308, None]),
    "float": (pa.float32(), [0.5, None]),
    "not a number": (pa.float64(), [math.inf, -math.inf, 1.5]),
    "bool": (pa.bool_(), [True, False, None]),
    "string": (pa.string(), ['"ö\n\u2028\x00', "", None]),
    "binary": (pa.binary(), [b"\x00\xff", b"", None]),
    "decimal": (DECIMAL, [Decimal("12345678901234567.125"), Decimal("0.000"), Decimal("-0.001"), None]),
    "date": (pa.date32(), [date(2026, 11, 15), date(1, 1, 1), date(1969, 12, 31), None]),
    "time": (TIME, [MOMENT, datetime(1950, 1, 1, tzinfo=UTC), None]),
    "local time": (LOCAL_TIME, [datetime(1950, 1, 1, 2, 30), None]),
    "list": (pa.list_(pa.date32()), [[date(2026, 1, 1), None], [], None]),
    "map": (pa.map_(pa.string(), DECIMAL), [[("a", Decimal("1.500")), ("b", None)], [], None]),
    "struct": (pa.struct([("x", pa.int32()), ("y", pa.list_(TIME))]), [{"x": 1, "y": [MOMENT, None]}, None]),
    "nested": (pa.list_(pa.struct([("b", pa.binary())])), [[{"b": b"\x01"}, None], None]),
}


def there_and_back(kind: pa.DataType, values: list[Any]) -> list[Any]:
    schema = pa.schema([("value", kind)])
    found = decode(encode(pa.table([pa.array(values, kind)], schema=schema)), schema)
    assert found.schema == schema
    return found.column("value").to_pylist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", VALUES)
def test_every_type_comes_back_as_it_was(name: str) -> None:
    kind, values = VALUES[name]
    assert there_and_back(kind, values) == values


@pytest.mark.parametrize("name", VALUES)
def test_the_slower_reader_reads_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_records, "_is_quick", lambda kind: False)
    kind, values = VALUES[name]
    assert there_and_back(kind, values) == values


def test_not_a_number_comes_back() -> None:
    found = there_and_back(pa.float64(), [math.nan, 1.0])
    assert math.isnan(found[0])
    assert found[1] == 1.0


@settings(deadline=None)  # a busy machine
@given(st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.text(), st.floats(allow_nan=False)), min_size=1))
def test_numbers_and_texts_of_any_kind(rows: list[tuple[int, str, float]]) -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.string()), ("c", pa.float64())])
    columns = [pa.array(values, field.type) for values, field in zip(zip(*rows, strict=True), schema, strict=True)]
    found = decode(encode(pa.table(columns, schema=schema)), schema)
    assert [tuple(row.values()) for row in found.to_pylist()] == rows


def test_others_can_read_it() -> None:
    table = pa.table(
        {"at": pa.array([MOMENT], TIME), "key": pa.array([b"\x01"]), "none": pa.array([None], pa.int64())}
    )
    assert json.loads(encode(table)[0]) == {"at": "2026-03-29T01:30:00.123456Z", "key": "AQ==", "none": None}


def test_the_numbers_of_spark_are_read() -> None:
    """It writes decimals as numbers, with an exponent where that is shorter."""
    schema = pa.schema([("d", pa.decimal128(38, 18)), ("x", pa.float64())])
    found = decode([b'{"d":0E-18,"x":1.0E-10}', b'{"d":1E-18,"x":"NaN"}', b'{"d":12.5,"x":null}'], schema)
    assert found.column("d").to_pylist() == [Decimal(0), Decimal("1E-18"), Decimal("12.5")]


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (
            MapType(IntegerType(), StringType()),
            r"channel.a: in Kafka the keys of a map are strings, found map<int",
        ),
        (
            ArrayType(DayTimeIntervalType()),
            r"channel.a\[\]: records of this type cannot go through Kafka: interval",
        ),
        (VariantType(), r"channel.a: records of this type cannot go through Kafka: variant"),
    ],
)
def test_what_would_not_come_back_is_refused(kind: DataType, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        check_schema(StructType([StructField("a", kind)]), "channel")
