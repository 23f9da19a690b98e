"""Records as JSON objects, one for each message of a topic: what anyone can read, and nothing is lost in it.

timestamp       "2026-03-29T01:30:00.123456Z", in UTC; without a time zone (timestamp_ntz) without the Z
date            "2026-11-15"
binary          base64
double, float   a number, or "NaN", "Infinity", "-Infinity"
decimal         a number with all its digits, in quotes where a feed wrote it (numbers of Python have fewer)
map             an object; its keys are strings
null            null, never left out

Spark writes it with `to_json`, feeds with `encode`. Most schemas are read by Arrow's own reader; those with binary
columns and maps, and batches with numbers that JSON does not have, in Python.
"""

from __future__ import annotations

import base64
import io
import json
import math
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
import pyarrow.json
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    AtomicType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    MapType,
    NumericType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from elastream.errors import InvalidInput

_TO_JSON = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "timeZone": "UTC",
}
_LEAVES = (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    NumericType,
    StringType,
    TimestampNTZType,
    TimestampType,
)


def check_schema(schema: DataType, place: str) -> None:
    """Refuse what JSON would not bring back as it was."""
    if isinstance(schema, StructType):
        for field in schema.fields:
            check_schema(field.dataType, f"{place}.{field.name}")
    elif isinstance(schema, ArrayType):
        check_schema(schema.elementType, f"{place}[]")
    elif isinstance(schema, MapType):
        if not isinstance(schema.keyType, StringType):
            raise InvalidInput(f"{place}: in Kafka the keys of a map are strings, found {schema.simpleString()}")
        check_schema(schema.valueType, f"{place}[]")
    elif not (isinstance(schema, _LEAVES) and isinstance(schema, AtomicType)):
        raise InvalidInput(f"{place}: records of this type cannot go through Kafka: {schema.simpleString()}")


def as_json(frame: DataFrame) -> Column:
    """A record as one column, for Spark to write."""
    if not frame.columns:
        return F.lit("{}")
    return F.to_json(F.struct("*"), _TO_JSON)


# Without Spark


def encode(table: pa.Table) -> list[bytes]:
    columns = [_plain_column(column) for column in table.columns]
    rows = zip(*columns, strict=True) if columns else iter([()] * table.num_rows)
    names = table.column_names
    return [
        json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False, allow_nan=False).encode()
        for row in rows
    ]


def decode(messages: Sequence[bytes], schema: pa.Schema) -> pa.RecordBatch:
    if all(_is_quick(field.type) for field in schema) and len(schema) > 0:
        try:
            return _decode_quickly(messages, schema)
        except pa.ArrowInvalid:
            pass  # NaN, most likely; what is really wrong fails below, too
    rows = [json.loads(message, parse_float=str) for message in messages]
    columns = []
    for field in schema:
        read = _reader(field.type)
        columns.append(pa.array([read(row[field.name]) for row in rows], field.type))
    if not columns:
        return pa.RecordBatch.from_struct_array(pa.array([{}] * len(rows), pa.struct([])))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _is_quick(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return all(_is_quick(field.type) for field in kind)
    if pa.types.is_list(kind):
        return _is_quick(kind.value_type)
    return not (pa.types.is_binary(kind) or pa.types.is_map(kind))


def _decode_quickly(messages: Sequence[bytes], schema: pa.Schema) -> pa.RecordBatch:
    text = b"\n".join(messages)
    asked = pa.schema([(field.name, _asked(field.type)) for field in schema])
    table = pa.json.read_json(
        io.BytesIO(text),
        # in one block: a record must not lie across two
        read_options=pa.json.ReadOptions(use_threads=False, block_size=len(text) + 1),
        parse_options=pa.json.ParseOptions(explicit_schema=asked, unexpected_field_behavior="ignore"),
    )
    if table.num_rows != len(messages):
        raise pa.ArrowInvalid("a message is not one record")
    return table.cast(schema).combine_chunks().to_batches(max_chunksize=len(messages))[0]


def _asked(kind: pa.DataType) -> pa.DataType:
    """What Arrow's reader is asked for: it reads no dates, but times, of which they can be made."""
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _asked(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_asked(kind.value_type))
    return pa.timestamp("s") if pa.types.is_date(kind) else kind


Convert = Callable[[Any], Any]


def _reader(kind: pa.DataType) -> Convert:
    """From what JSON has to what Arrow takes."""
    if pa.types.is_struct(kind):
        fields = {field.name: _reader(field.type) for field in kind}
        return _unless_none(lambda value: {name: read(value[name]) for name, read in fields.items()})
    if pa.types.is_list(kind):
        read_item = _reader(kind.value_type)
        return _unless_none(lambda value: [read_item(item) for item in value])
    if pa.types.is_map(kind):
        read_value = _reader(kind.item_type)
        return _unless_none(lambda value: [(key, read_value(item)) for key, item in value.items()])
    if pa.types.is_decimal(kind):
        scale = Decimal(1).scaleb(-kind.scale)
        return _unless_none(lambda value: Decimal(value).quantize(scale, context=_DECIMALS))
    for is_kind, read in _READERS:
        if is_kind(kind):
            return _unless_none(read)
    return lambda value: value


def _plain_column(column: pa.ChunkedArray) -> list[Any]:
    values: list[Any] = column.to_pylist()
    write = _writer(column.type)
    return values if write is None else [write(value) for value in values]


def _writer(kind: pa.DataType) -> Convert | None:
    """From what Arrow gives to what JSON has; none where that is the same."""
    if pa.types.is_struct(kind):
        fields = {field.name: _writer(field.type) or _same for field in kind}
        return _unless_none(lambda value: {name: write(value[name]) for name, write in fields.items()})
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        write_item = _writer(kind.value_type) or _same
        return _unless_none(lambda value: [write_item(item) for item in value])
    if pa.types.is_map(kind):
        write_value = _writer(kind.item_type) or _same
        return _unless_none(lambda value: {key: write_value(item) for key, item in value})
    if pa.types.is_timestamp(kind):
        return _unless_none(_time_text if kind.tz else _local_time_text)
    for is_kind, write in _WRITERS:
        if is_kind(kind):
            return _unless_none(write)
    return None


def _unless_none(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)


def _same(value: Any) -> Any:
    return value


def _time_text(value: datetime) -> str:
    return value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def _local_time_text(value: datetime) -> str:
    return value.isoformat(timespec="microseconds")


def _number(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


_DECIMALS = Context(prec=76)
_READERS: tuple[tuple[Callable[[pa.DataType], bool], Convert], ...] = (
    (pa.types.is_floating, float),
    (pa.types.is_binary, base64.b64decode),
    (pa.types.is_timestamp, datetime.fromisoformat),
    (pa.types.is_date, date.fromisoformat),
)
_WRITERS: tuple[tuple[Callable[[pa.DataType], bool], Convert], ...] = (
    (pa.types.is_floating, _number),
    (pa.types.is_binary, lambda value: base64.b64encode(value).decode()),
    (pa.types.is_decimal, str),
    (pa.types.is_date, date.isoformat),
)
