"""Reading files that people write: one place that turns what pydantic finds into a sentence with its place."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError, create_model, model_validator

from elastream.durations import seconds
from elastream.errors import InvalidInput, nearest, shown


class Strict(BaseModel):
    """A part of a file: no unknown keys, no strings where numbers belong."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=True)

    @model_validator(mode="before")
    @classmethod
    def _no_unknown_keys(cls, data: Any) -> Any:
        if isinstance(data, dict) and not data.keys() <= cls.model_fields.keys():
            known = cls.model_fields.keys()
            unknown = next(key for key in data if key not in known)
            raise ValueError(f"unknown key {shown(unknown)}{nearest(str(unknown), known)}")
        return data


def entry_of(kind: Any, **replaced: Any) -> Any:
    """The part of a file that has the fields of a dataclass, each with its type and default.

    `replaced` are those that are written otherwise, as pydantic's `create_model` takes them.
    """
    hints = get_type_hints(kind, include_extras=True)
    declared = {
        field.name: replaced.get(
            field.name, (hints[field.name], ... if field.default is MISSING else field.default)
        )
        for field in fields(kind)
    }
    return create_model(f"{kind.__name__}Entry", __base__=Strict, **(declared | replaced))


Duration = Annotated[float, BeforeValidator(seconds)]
"""Seconds, or words like "500 ms"."""

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")  # as JSON writes half of a character: most come in pairs

Model = TypeVar("Model", bound=BaseModel)


def parse(model: type[Model], data: Any, place: str) -> Model:
    """Check data against a model; the error names the place, what was expected and what was found."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise InvalidInput(f"{place}: {where(first['loc'])}{what(first)}") from None


def read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InvalidInput(f"{path}: there is no such file") from None
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path}: not a UTF-8 text file (byte {error.start})") from None
    except OSError as error:
        raise InvalidInput(f"{path}: cannot be read: {error.strerror}") from None


def read_json(text: str, place: str) -> Any:
    try:
        found = json.loads(text, object_pairs_hook=_no_duplicate_keys)
    except json.JSONDecodeError as error:
        found_at = f"line {error.lineno}, column {error.colno}"
        raise InvalidInput(f"{place}: not valid JSON: {error.msg} ({found_at})") from None
    except RecursionError:
        raise InvalidInput(f"{place}: not valid JSON: nested too deeply") from None
    except InvalidInput as error:
        raise error.at(place) from None
    except ValueError as error:  # a number with more digits than Python converts
        raise InvalidInput(f"{place}: not valid JSON: {error}") from None
    if _SURROGATE.search(text):
        _check_characters(found, place)
    return found


class InvalidYaml(InvalidInput):
    """Not YAML at all; the line is that of the mark which the parser left, from 1 on."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.line = line


def read_yaml(text: str, place: str) -> Any:
    try:
        return _constructed(_UniqueKeys(text))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        found_at = f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""
        line = mark.line + 1 if mark else None
        raise InvalidYaml(f"{place}: not valid YAML: {error.problem}{found_at}", line) from None
    except (yaml.YAMLError, RecursionError, ValueError, TypeError, LookupError, AttributeError) as error:
        # PyYAML lets the errors of its converters through, such as a KeyError for `!!bool x`
        raise InvalidInput(f"{place}: not valid YAML: {error}") from None


def _constructed(loader: _UniqueKeys) -> Any:
    try:
        root = loader.get_single_node()
        if root is None:
            return None
        _check_aliases(root)
        return loader.construct_document(root)
    finally:
        loader.dispose()


_MOST_REPEATED = 10_000  # parts of a file that its aliases stand for


def _check_aliases(root: yaml.Node) -> None:
    """Refuse a file whose aliases make a small text a huge document: each level of them can multiply the last."""
    sizes: dict[int, int] = {}
    own = 0

    def size(node: yaml.Node) -> int:
        nonlocal own
        if id(node) not in sizes:
            own += 1
            sizes[id(node)] = 2 * _MOST_REPEATED  # of one within itself, which has no end
            sizes[id(node)] = 1 + sum(map(size, _parts(node)))
        return sizes[id(node)]

    if size(root) - own > _MOST_REPEATED:
        problem = f"aliases may stand for {_MOST_REPEATED:,} parts of a file at most, and these stand for more"
        raise yaml.constructor.ConstructorError(None, None, problem, root.start_mark)


def _parts(node: yaml.Node) -> list[yaml.Node]:
    match node:
        case yaml.MappingNode():
            return [part for entry in node.value for part in entry]
        case yaml.SequenceNode():
            return list(node.value)
        case _:
            return []


class _UniqueKeys(yaml.SafeLoader):
    """YAML lets the last of two equal keys win; in a file that people edit that hides a mistake."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, str) and key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {shown(key)} is given twice", key_node.start_mark
                )
            if isinstance(key, str):
                seen.add(key)
        return super().construct_mapping(node, deep)


class Lines:
    """Where in a text of YAML its parts stand."""

    def __init__(self, text: str) -> None:
        self._root = yaml.compose(text, Loader=yaml.SafeLoader)

    def of(self, path: Sequence[Any]) -> int | None:
        """The line of a part; where it is not there, of the nearest part around it."""
        node, line = self._root, None
        for part in path:
            match node:
                case yaml.MappingNode():
                    found = next(((k, v) for k, v in node.value if k.value == part), None)
                case yaml.SequenceNode() if isinstance(part, int) and part < len(node.value):
                    found = node.value[part], node.value[part]
                case _:
                    found = None
            if found is None:
                break
            line, node = found[0].start_mark.line + 1, found[1]
        return line if line is not None or self._root is None else self._root.start_mark.line + 1


def _check_characters(data: Any, place: str) -> None:
    """JSON can write half of a character; no file, page or terminal can."""
    try:
        json.dumps(data, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as error:
        half = f"U+{ord(error.object[error.start]):04X}"
        raise InvalidInput(f"{place}: not valid JSON: a text has half of a character ({half})") from None


def _no_duplicate_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise InvalidInput(f"the key {shown(key)} is given twice in one object")
        found[key] = value
    return found


def where(location: tuple[int | str, ...]) -> str:
    """A place within a file, as it is put before an error: `rules[0].by: `."""
    path = ""
    for part in location:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else part
    return f"{path}: " if path else ""


def what(error: Any) -> str:
    """One of pydantic's errors in our words."""
    match error["type"]:
        case "missing":
            return "is missing"
        case "value_error":
            return str(error["ctx"]["error"])
        case "model_type" | "dict_type":
            return f"Input should be an object, found {shown(error['input'])}"
        case _:
            return f"{error['msg']}, found {shown(error['input'])}"


def is_number(value: Any) -> bool:
    """A number that a float can hold."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 2**1023
