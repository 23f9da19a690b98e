"""The reference of the REST API, from docs/openapi.json, which a test compares with the API itself."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from docs.hooks.markdown_text import code, sentence, table

DOCUMENT = Path(__file__).parents[1] / "openapi.json"

Json = Mapping[str, Any]


def rest_text() -> str:
    document: Json = json.loads(DOCUMENT.read_text(encoding="utf-8"))
    calls = list(_calls(document))
    overview = table(
        ["call", "what", "token"],
        ([f"[`{m} {path}`](#{_anchor(m, path)})", call["summary"], _token(call)] for m, path, call in calls),
    )
    parts = [overview, *(_call(method, path, call) for method, path, call in calls), "## Values"]
    return "\n\n".join([*parts, *(_schema(n, s) for n, s in document["components"]["schemas"].items())])


def _calls(document: Json) -> Iterator[tuple[str, str, Json]]:
    for path, methods in document["paths"].items():
        for method, call in methods.items():
            yield method.upper(), path, call


def _anchor(method: str, path: str) -> str:
    return f"{method}-{path}".lower().replace("/", "-").replace("--", "-").strip("-")


def _token(call: Json) -> str:
    return "needed" if call.get("security") else ""


def _call(method: str, path: str, call: Json) -> str:
    parts = [f"### {method} {path} {{ #{_anchor(method, path)} }}", sentence(call["summary"])]
    if call.get("description"):
        parts.append(call["description"])
    if parameters := call.get("parameters"):
        rows = (
            [code(p["name"]), p["in"], _type(p["schema"]), sentence(p.get("description", ""))] for p in parameters
        )
        parts.append(table(["parameter", "in", "type", "meaning"], rows))
    if body := call.get("requestBody"):
        parts.append(f"Body: {_content(body['content'])}.")
    rows = (
        [status, _content(r.get("content", {})), r["description"]]
        for status, r in sorted(call["responses"].items())
    )
    return "\n\n".join([*parts, table(["status", "answer", "when"], rows)])


def _content(content: Json) -> str:
    """What is in it, by its type; where nothing is said of what is in it, the type alone."""
    return ", ".join(
        _type(entry["schema"]) if entry.get("schema") else code(kind) for kind, entry in content.items()
    )


def _schema(name: str, schema: Json) -> str:
    parts = [f"### {name} {{ #{name.lower()} }}"]
    if schema.get("description"):
        parts.append(schema["description"])
    if "enum" in schema:
        parts.append("One of " + ", ".join(code(str(value)) for value in schema["enum"]) + ".")
    if fields := schema.get("properties"):
        needed = schema.get("required", ())
        rows = (
            [
                code(field),
                _type(entry),
                "" if field in needed else "optional",
                sentence(entry.get("description", "")),
            ]
            for field, entry in fields.items()
        )
        parts.append(table(["field", "type", "", "meaning"], rows))
    return "\n\n".join(parts)


def _type(schema: Json) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "const" in schema:
        return code(json.dumps(schema["const"]))
    if "enum" in schema:
        return ", ".join(code(str(value)) for value in schema["enum"])
    for several in ("anyOf", "oneOf", "allOf"):
        if several in schema:
            return " or ".join(dict.fromkeys(map(_type, schema[several])))
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if isinstance(schema.get("additionalProperties"), Mapping):
        return f"object of {_type(schema['additionalProperties'])}"
    return str(schema.get("type", "any"))
