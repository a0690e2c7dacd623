"""The OpenAPI description of the API, out of the table that serves it."""

from collections.abc import Iterable
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from vmq.http.operation import Operation
from vmq.version import __version__

_REF: Final = "#/components/schemas/{name}"


class Failure(Struct):
    """Why an operation was not done."""

    error: str


class State(Struct):
    """Whether new clients are served, and what is wrong. degraded: they are, and something else is not."""

    status: Literal["ok", "degraded", "failing"]
    reasons: list[str]


#: What anybody may ask a listener of HTTP, without a key and beside the API.
HEALTH: Final = {
    "/health": "What is wrong with the broker, if anything is",
    "/health/ready": "Whether new clients are served: for load balancers",
    "/health/live": "Whether the process answers: for whoever would start it anew",
}

#: What every operation may answer besides its result.
FAILURES: Final = {
    "400": "The request makes no sense",
    "401": "The API key is missing or wrong",
    "403": "The API key may look, and change nothing",
    "404": "There is no such thing",
    "409": "The thing is in no state for this",
    "413": "The body is too large",
    "500": "An error of the broker's own",
    "503": "A part of the broker does not run now",
}


def describe(operations: Iterable[Operation], prefix: str, *, with_keys: bool) -> dict[str, Any]:
    """The OpenAPI 3.1 document of some operations under a path; `with_keys`: they want an API key."""
    chosen = list(operations)
    kinds: list[type[Struct]] = [Failure, *(each.row for each in chosen)]
    if with_keys:
        kinds.append(State)
    kinds += [each.parameters for each in chosen if each.method == "POST"]
    _, schemas = msgspec.json.schema_components(dict.fromkeys(kinds), ref_template=_REF)
    paths: dict[str, Any] = {}
    for each in chosen:
        path = paths.setdefault(prefix + each.path, {})
        path[each.method.lower()] = _operation(each, with_keys=with_keys)
    if with_keys:
        paths |= {path: {"get": _health(path, text)} for path, text in HEALTH.items()}
    components: dict[str, Any] = {"schemas": schemas}
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {
            "title": "vmq",
            "version": __version__,
            "description": "A look into a running broker. A client id and a topic may be any text, "
            "so they travel in the query, not in the path.",
        },
        "paths": paths,
        "components": components,
    }
    if with_keys:
        components["securitySchemes"] = {
            "header": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            "basic": {
                "type": "http",
                "scheme": "basic",
                "description": "The API key is the user name; the password is ignored.",
            },
        }
        document["security"] = [{"header": []}, {"basic": []}]
    return document


def _health(path: str, summary: str) -> dict[str, Any]:
    content = {"application/json": {"schema": {"$ref": _REF.format(name="State")}}}
    responses = {"200": {"description": "ok or degraded", "content": content}}
    if path != "/health/live":
        responses["503"] = {"description": "New clients cannot be served", "content": content}
    name = path.strip("/").replace("/", "-")
    return {"operationId": name, "summary": summary, "security": [], "responses": responses}


def _operation(operation: Operation, *, with_keys: bool) -> dict[str, Any]:
    result: dict[str, Any] = {"$ref": _REF.format(name=operation.row.__name__)}
    if operation.many:
        result = {
            "type": "object",
            "required": ["rows", "more"],
            "properties": {
                "rows": {"type": "array", "items": result},
                "more": {
                    "type": "boolean",
                    "description": "Whether the limit left rows out",
                },
                "missing": {
                    "type": "array",
                    "items": {"type": "string"},
                    "description": "Nodes, if any, that did not answer, or of whose rows not all are here",
                },
            },
        }
    responses: dict[str, Any] = {
        "200": {"description": "Done", "content": {"application/json": {"schema": result}}}
    }
    failure = {"$ref": _REF.format(name="Failure")}
    for status, text in FAILURES.items():
        if with_keys or status not in ("401", "403"):
            content = {"application/json": {"schema": failure}}
            responses[status] = {"description": text, "content": content}
    found: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "responses": responses,
    }
    if operation.method == "POST":
        body = {"$ref": _REF.format(name=operation.parameters.__name__)}
        found["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": body}},
        }
    else:
        found["parameters"] = _query(operation.parameters)
    return found


def _query(parameters: type[Struct]) -> list[dict[str, Any]]:
    _, components = msgspec.json.schema_components([parameters], ref_template=_REF)
    table = components[parameters.__name__]
    required = table.get("required", ())
    found: list[dict[str, Any]] = []
    for name, schema in table["properties"].items():
        description = schema.pop("description", None)
        one = {"name": name, "in": "query", "required": name in required, "schema": schema}
        if description:
            one["description"] = description
        found.append(one)
    return found
