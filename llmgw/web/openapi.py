"""The API's description, generated from the actions registry and the types that travel, so that it cannot differ.

`python -m llmgw.web.openapi --write` renews `docs/reference/openapi.json`; a test compares the two.
"""

import json
import sys
import types
from functools import lru_cache
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec

from llmgw import __version__
from llmgw.api.actions import ACTIONS, Action, Argument, Kind
from llmgw.api.paths import METRICS, NDJSON_TYPE, OPENAPI, PROBLEM_TYPE, parameters
from llmgw.api.types import Problem
from llmgw.core.docstrings import field_docs

REFERENCE = Path("docs/reference/openapi.json")
_REF = "#/components/schemas/{name}"
_PROBLEMS = {"400": "The request is wrong", "401": "Not known", "403": "Not allowed", "404": "Not there"}
_PROBLEMS |= {"409": "The state forbids it", "413": "Too large", "503": "Something needed is away; try again"}


@lru_cache(maxsize=1)
def openapi_json() -> bytes:
    """The document as JSON, indented, with a newline at its end."""
    return json.dumps(openapi(), indent=1, ensure_ascii=False).encode() + b"\n"


def openapi() -> dict[str, Any]:
    """The document, OpenAPI 3.1."""
    schemas, components = _schemas()
    paths: dict[str, dict[str, Any]] = {}
    for action in ACTIONS:
        paths.setdefault(action.path, {})[action.method.lower()] = _operation(action, schemas)
    paths[METRICS] = {"get": _plain("metrics", "Figures for Prometheus", "text/plain", public=True)}
    paths[OPENAPI] = {"get": _plain("openapi", "This document", "application/json", public=False)}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "llmgw admin API",
            "version": __version__.partition("+")[0],
            "description": "Reached through `admin.sock`, where the account is the caller, or loopback TCP with a "
            "bearer token. Fields are only ever added.",
        },
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


def _schemas() -> tuple[dict[Any, Any], dict[str, Any]]:
    wanted: list[Any] = [Problem]
    for action in ACTIONS:
        wanted += [type_ for type_ in (action.request, action.response) if type_ is not None]
    keys = [repr(type_) for type_ in wanted]
    made, components = msgspec.json.schema_components(wanted, ref_template=_REF)
    for struct in _structs(wanted):
        properties = components[struct.__name__].get("properties", {})
        for name, text in field_docs(struct).items():
            if name in properties:
                properties[name] = {**properties[name], "description": text}
    return dict(zip(keys, made, strict=True)), dict(sorted(components.items()))


def _structs(roots: list[Any]) -> set[type[msgspec.Struct]]:
    """Every struct reachable from `roots`, through containers, unions and fields."""
    found: set[type[msgspec.Struct]] = set()
    waiting = list(roots)
    while waiting:
        type_ = waiting.pop()
        if get_origin(type_) in (list, tuple, dict, Union, types.UnionType):
            waiting += get_args(type_)
        elif isinstance(type_, type) and issubclass(type_, msgspec.Struct) and type_ not in found:
            found.add(type_)
            waiting += get_type_hints(type_).values()
    return found


def _operation(action: Action, schemas: dict[Any, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": action.id,
        "summary": action.help[:1].upper() + action.help[1:],
        "tags": [action.target.value],
        "description": f"Role: {action.permission.role}. Danger: {action.danger.value}.",
    }
    given: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in parameters(action.path)
    ]
    given += [_parameter(argument) for argument in action.query]
    if given:
        operation["parameters"] = given
    if action.request is not None:
        content = {"application/json": {"schema": schemas[repr(action.request)]}}
        operation["requestBody"] = {"required": True, "content": content}
    answer: dict[str, Any] = {"text/plain": {"schema": {"type": "string"}}}
    if action.response is not None:
        kind = NDJSON_TYPE if action.stream else "application/json"
        answer = {kind: {"schema": schemas[repr(action.response)]}}
    operation["responses"] = {"2XX": {"description": "Done", "content": answer}, **_problems(schemas)}
    return operation


def _problems(schemas: dict[Any, Any]) -> dict[str, Any]:
    content = {PROBLEM_TYPE: {"schema": schemas[repr(Problem)]}}
    return {status: {"description": text, "content": content} for status, text in _PROBLEMS.items()}


def _parameter(argument: Argument) -> dict[str, Any]:
    kinds = {Kind.INTEGER: "integer", Kind.FLAG: "boolean"}
    return {
        "name": argument.key,
        "in": "query",
        "description": argument.help,
        "schema": {"type": kinds.get(argument.kind, "string")},
    }


def _plain(name: str, summary: str, type_: str, *, public: bool) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": name,
        "summary": summary,
        "responses": {"200": {"description": "Done", "content": {type_: {"schema": {}}}}},
    }
    if public:
        operation["security"] = []
    return operation


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        REFERENCE.parent.mkdir(parents=True, exist_ok=True)
        REFERENCE.write_bytes(openapi_json())
    else:
        sys.stdout.buffer.write(openapi_json())
