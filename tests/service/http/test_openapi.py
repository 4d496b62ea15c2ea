"""The OpenAPI document: complete, true, and hostile to those who do not keep it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from tenure.service.api.openapi import ALL, document
from tenure.service.http.problems import ProblemCode
from tests.service.http.program import Service, User

SECONDS = 200
"""The most time that the test may take; where the machine is not busy it ends earlier."""


def operations() -> list[tuple[str, str, dict[str, Any]]]:
    return [
        (path, method, operation)
        for path, methods in document()["paths"].items()
        for method, operation in methods.items()
    ]


def test_document_has_every_route_and_no_other(user: User) -> None:
    """The document and the routing come from one table; the service answers with that document."""
    assert {(route.path, route.method.lower()) for route in ALL.all} == {(p, m) for p, m, _ in operations()}
    assert user.get("/openapi.json").json() == document()


def test_every_operation_is_told_in_full() -> None:
    """Summary, description, every parameter of its path, an example of its body, and problems by code."""
    ids = [operation["operationId"] for _, _, operation in operations()]
    assert len(set(ids)) == len(ids)
    for path, _, operation in operations():
        assert operation["summary"], path
        assert operation["description"], path
        in_path = {f"{{{p['name']}}}" for p in operation["parameters"] if p["in"] == "path"}
        assert in_path == {part for part in path.split("/") if part.startswith("{")}
        assert {"200", "400", "404", "500"} <= operation["responses"].keys(), path
        if operation["security"]:
            assert {"401", "403", "429"} <= operation["responses"].keys(), path
        if "requestBody" in operation:
            content = operation["requestBody"]["content"]["application/json"]
            body = content["examples"]["usual"]["value"]
            jsonschema_rs.validator_for(content["schema"]).validate(body)
            assert {"413", "415"} <= operation["responses"].keys(), path


def test_every_example_of_an_answer_is_true_to_its_schema() -> None:
    """Examples are what people copy."""
    components = {"schemas": document()["components"]["schemas"]}
    seen = 0
    for _, _, operation in operations():
        for answer in operation["responses"].values():
            for content in answer["content"].values():
                for example in content.get("examples", {}).values():
                    schema = {**content["schema"], "components": components}
                    jsonschema_rs.validator_for(schema).validate(example["value"])
                    seen += 1
    assert seen > 100


def test_tokens_are_strings_everywhere() -> None:
    """A JSON number holds 2^53; a token does not fit."""

    def properties(schema: Any) -> Any:
        if isinstance(schema, dict):
            yield from schema.get("properties", {}).items()
            for value in schema.values():
                yield from properties(value)
        elif isinstance(schema, list):
            for value in schema:
                yield from properties(value)

    tokens = [schema for name, schema in properties(document()) if name in ("token", "fencingToken")]
    assert len(tokens) >= 5
    assert all(schema["type"] in ("string", ["string", "null"]) for schema in tokens)


def test_every_code_is_in_the_document_with_its_meaning() -> None:
    """Codes stand in one table; each belongs to some operation, and is explained."""
    operation = document()["info"]["description"]
    used = {
        code
        for _, _, o in operations()
        for r in o["responses"].values()
        for c in r["content"].values()
        for code in c.get("examples", {})
    }
    for code in ProblemCode:
        assert f"| `{code.value}` | {code.status} |" in operation
        assert code.value in used or code is ProblemCode.METHOD_NOT_ALLOWED, code


@pytest.mark.timeout(400)
def test_nothing_that_the_document_allows_or_forbids_gets_a_5xx(open_service: Service, tmp_path: Path) -> None:
    """schemathesis, in bounded time: whatever it sends, the answer is one that the document has."""
    program = tmp_path / "fuzz.py"
    program.write_text(FUZZ)
    done = subprocess.run(
        [sys.executable, str(program), open_service.url, str(SECONDS)],
        capture_output=True,
        text=True,
        timeout=360,
        check=False,
        env={**os.environ, "HYPOTHESIS_STORAGE_DIRECTORY": str(tmp_path)},
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-6000:]
    tried = int(done.stdout.split()[-1])
    assert tried > 50
    assert not [line for line in open_service.log if line.get("status", 0) in (500, 502)]


FUZZ = """
import sys, time
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings, seed
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance, response_schema_conformance, status_code_conformance,
)

url, seconds = sys.argv[1], float(sys.argv[2])
schema = schemathesis.openapi.from_url(url + "/openapi.json")
checks = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
tried = 0
operations = [found.ok() for found in schema.get_all_operations()]
operations = [one for one in operations if not one.path.endswith("/events")]
until = time.monotonic() + seconds
for operation in operations:
    for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
        try:
            strategy = operation.as_strategy(generation_mode=mode)
        except Exception as error:
            if mode is GenerationMode.POSITIVE:
                raise
            continue

        @seed(1)
        @settings(max_examples=10, deadline=None, database=None, phases=[Phase.explicit, Phase.generate],
                  suppress_health_check=list(HealthCheck))
        @given(case=strategy)
        def send(case):
            global tried
            if time.monotonic() > until:
                return
            if isinstance(case.body, dict):
                if isinstance(case.body.get("waitSeconds"), (int, float)):
                    case.body["waitSeconds"] = min(case.body["waitSeconds"], 0.05)
            tried += 1
            case.call_and_validate(checks=checks, timeout=60)

        try:
            send()
        except schemathesis.errors.SchemathesisError as error:
            if mode is GenerationMode.POSITIVE:
                raise
        except Exception as error:
            if "Unsatisfiable" in type(error).__name__ or "Unsatisfied" in type(error).__name__:
                continue
            raise
print(tried)
"""
