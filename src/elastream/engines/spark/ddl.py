"""Types written in Spark's DDL, read without Spark: what a pipeline file needs before there is a session.

    "string"    "decimal(10, 2)"    "array<struct<name: string, at: timestamp>>"    "user string, score double"

Spark has only one parser of them, in its JVM. This one reads the types that Python functions can return, as Spark
does (`tests/spark/test_spark_ddl.py` compares the two), and refuses the rest rather than guess.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import types as t

from elastream.errors import InvalidInput, nearest

_SIMPLE: dict[str, Callable[[], t.DataType]] = {
    "boolean": t.BooleanType,
    "tinyint": t.ByteType,
    "byte": t.ByteType,
    "smallint": t.ShortType,
    "short": t.ShortType,
    "int": t.IntegerType,
    "integer": t.IntegerType,
    "bigint": t.LongType,
    "long": t.LongType,
    "float": t.FloatType,
    "real": t.FloatType,
    "double": t.DoubleType,
    "date": t.DateType,
    "timestamp": t.TimestampType,
    "timestamp_ntz": t.TimestampNTZType,
    "timestamp_ltz": t.TimestampType,
    "string": t.StringType,
    "binary": t.BinaryType,
    "void": t.NullType,
    "variant": t.VariantType,
}
_DECIMAL = ("decimal", "dec", "numeric")
_WITH_LENGTH: dict[str, Callable[[int], t.DataType]] = {
    "char": t.CharType,
    "character": t.CharType,
    "varchar": t.VarcharType,
}
_WORD = re.compile(
    r"\s*(?:(?P<name>`(?:[^`]|``)*`|\w+)|(?P<text>'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")|(?P<sign>[<>(),:]))"
)


def parse_ddl(text: str) -> t.DataType:
    """A type, or a struct of the columns of a table. What is neither is told as what it is more like."""
    a_type, columns = _Reader(text), _Reader(text)
    try:
        return a_type.whole(_Reader.a_type)
    except InvalidInput as error:
        try:
            return columns.whole(_Reader.columns)
        except InvalidInput:
            if columns.at > a_type.at:
                raise
            raise error from None


@dataclass
class _Reader:
    """From left to right, without looking back."""

    text: str
    at: int = 0

    def whole(self, read: Callable[[_Reader], t.DataType]) -> t.DataType:
        found = read(self)
        if self.text[self.at :].strip():
            raise self._refused()
        return found

    def a_type(self) -> t.DataType:
        name = self._name().lower()
        if name in _SIMPLE:
            return _SIMPLE[name]()
        if name in _DECIMAL:
            return t.DecimalType(*(self._numbers(most=2) if self._next_is("(") else ()))
        if name in _WITH_LENGTH:
            return _WITH_LENGTH[name](*self._numbers(most=1))
        if name == "array":
            (element,) = self._within(1)
            return t.ArrayType(element)
        if name == "map":
            key, value = self._within(2)
            return t.MapType(key, value)
        if name == "struct":
            return self._struct()
        known = (*_SIMPLE, *_DECIMAL, *_WITH_LENGTH, "array", "map", "struct")
        whole = "" if name == self.text.strip().lower() else f"{self.text!r}: "
        raise InvalidInput(f"{whole}a type in Spark's DDL was expected, found {name!r}{nearest(name, known)}")

    def columns(self) -> t.StructType:
        fields = [self._field()]
        while self._take(","):
            fields.append(self._field())
        return t.StructType(fields)

    def _struct(self) -> t.StructType:
        self._expect("<")
        if self._take(">"):
            return t.StructType([])
        found = self.columns()
        self._expect(">")
        return found

    def _within(self, count: int) -> list[t.DataType]:
        self._expect("<")
        found = [self.a_type()]
        while len(found) < count:
            self._expect(",")
            found.append(self.a_type())
        self._expect(">")
        return found

    def _field(self) -> t.StructField:
        name = self._name()
        self._take(":")
        kind = self.a_type()
        nullable, metadata = True, {}
        if self._take_word("not"):
            if not self._take_word("null"):
                raise self._refused()
            nullable = False
        if self._take_word("comment"):
            metadata["comment"] = self._comment()
        return t.StructField(name, kind, nullable, metadata)

    def _comment(self) -> str:
        found = self._look()
        if found is None or found["text"] is None or "\\" in found["text"]:
            raise self._refused()
        self.at = found.end()
        return str(found["text"][1:-1])

    def _numbers(self, *, most: int) -> list[int]:
        self._expect("(")
        found = [self._number()]
        while len(found) < most and self._take(","):
            found.append(self._number())
        self._expect(")")
        return found

    def _number(self) -> int:
        word = self._name()
        if not word.isdecimal():
            raise self._refused()
        return int(word)

    def _name(self) -> str:
        found = self._look()
        if found is None or found["name"] is None:
            raise self._refused()
        self.at = found.end()
        name = str(found["name"])
        return name[1:-1].replace("``", "`") if name.startswith("`") else name

    def _look(self) -> re.Match[str] | None:
        return _WORD.match(self.text, self.at)

    def _next_is(self, sign: str) -> bool:
        found = self._look()
        return found is not None and found["sign"] == sign

    def _take(self, sign: str) -> bool:
        found = self._look()
        if found is None or found["sign"] != sign:
            return False
        self.at = found.end()
        return True

    def _take_word(self, word: str) -> bool:
        found = self._look()
        if found is None or (found["name"] or "").lower() != word:
            return False
        self.at = found.end()
        return True

    def _expect(self, sign: str) -> None:
        if not self._take(sign):
            raise self._refused()

    def _refused(self) -> InvalidInput:
        return InvalidInput(
            f"{self.text!r}: a type in Spark's DDL was expected, which it is not from {self._rest()} on"
        )

    def _rest(self) -> str:
        rest: Any = self.text[self.at :].strip()
        return repr(rest) if rest else "its end"
