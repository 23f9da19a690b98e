"""The API does what its own OpenAPI document says, whatever it is asked; and the document in docs/ is this one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance
from serving import WITH_TOKEN, Served

from elastream.web.app import openapi_document

DOCS = Path(__file__).parents[2] / "docs" / "openapi.json"


@pytest.mark.parametrize("mode", GenerationMode)
def test_every_operation_answers_as_documented(shown: Served, mode: GenerationMode) -> None:
    """With what the document allows, and with what it does not."""
    schema = schemathesis.openapi.from_dict(openapi_document())
    with requests.Session() as session:
        # a stream never ends, so it has tests of its own
        for found in schema.exclude(path="/api/v1/stream").get_all_operations():
            try:
                _check(shown, found.ok().as_strategy(generation_mode=mode), session)
            except Unsatisfiable:  # nothing can be wrong with a request that has no parts
                assert mode is GenerationMode.NEGATIVE


def _check(shown: Served, cases: Any, session: requests.Session) -> None:
    @given(case=cases)
    @settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
    def answers(case: Any) -> None:
        case.call_and_validate(
            base_url=shown.server.url.rstrip("/"),
            headers=WITH_TOKEN,
            session=session,
            # what the pipeline's operators are called the document cannot know: others are refused
            excluded_checks=[positive_data_acceptance],
        )

    answers()


def test_the_document_in_the_docs_is_current() -> None:
    text = "the API has changed: make openapi writes docs/openapi.json"
    assert json.loads(DOCS.read_text(encoding="utf-8")) == openapi_document(), text


def test_every_error_is_documented_as_a_problem() -> None:
    for path, operations in openapi_document()["paths"].items():
        for operation in operations.values():
            for status, answer in operation["responses"].items():
                if status >= "400":
                    assert list(answer["content"]) == ["application/problem+json"], f"{path}: {status}"
