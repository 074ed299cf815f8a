"""The HTTP interface described as OpenAPI 3.1, made from the deeds themselves: both always agree."""

from __future__ import annotations

import re
from typing import Any

from kourou import __version__
from kourou.console.api.receive import RECEIVE_FIELDS, TAIL_FIELDS
from kourou.console.deeds.catalogue import DEEDS
from kourou.console.deeds.deed import Field
from kourou.console.login import Role

_PLACE = re.compile(r"{(\w+)}")

WAITING = (
    (
        "message.receive",
        "POST",
        "/topics/{topic}/receive",
        Role.OPERATOR,
        RECEIVE_FIELDS,
        "Receive messages for a group; waits for some to come",
    ),
    (
        "message.stream",
        "GET",
        "/topics/{topic}/stream",
        Role.OPERATOR,
        RECEIVE_FIELDS,
        "Receive messages for a group as a stream of events",
    ),
    (
        "message.settle",
        "POST",
        "/receipts/{receipt}",
        Role.OPERATOR,
        (
            Field("receipt", "What the message came with.", needed=True),
            Field("outcome", "Done with it, or to come again.", choices=("done", "retry")),
        ),
        "Acknowledge a message, or have it come again",
    ),
    (
        "message.tail",
        "GET",
        "/topics/{topic}/tail",
        Role.VIEWER,
        TAIL_FIELDS,
        "Watch what comes, as a stream of events; nothing is taken",
    ),
)


def described() -> dict[str, Any]:
    """The whole document."""
    paths: dict[str, dict[str, Any]] = {}
    for deed in DEEDS:
        paths.setdefault(deed.path, {})[deed.method.lower()] = _operation(
            deed.name, deed.about, deed.role, deed.method, deed.path, deed.fields
        )
    for name, method, path, role, fields, about in WAITING:
        paths.setdefault(path, {})[method.lower()] = _operation(name, about, role, method, path, fields)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Kourou",
            "version": __version__,
            "description": "Everything the console can do, for programs and for people without a client.",
        },
        "servers": [{"url": "/api/v1"}],
        "security": [{"token": []}],
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {"Error": _ERROR},
        },
        "paths": dict(sorted(paths.items())),
    }


_ERROR = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {"kind": {"type": "string"}, "message": {"type": "string"}},
        }
    },
}


def _operation(
    name: str, about: str, role: Role, method: str, path: str, fields: tuple[Field, ...]
) -> dict[str, Any]:
    places = set(_PLACE.findall(path))
    in_body = method in ("POST", "PUT", "PATCH")
    operation: dict[str, Any] = {
        "operationId": name,
        "summary": about,
        "description": f"Needs the role {role}.",
        "tags": [name.partition(".")[0]],
        "parameters": [
            {
                "name": field.name,
                "in": "path" if field.name in places else "query",
                "required": field.name in places or field.needed,
                "description": field.about,
                "schema": _schema(field),
            }
            for field in fields
            if field.name in places or not in_body
        ],
        "responses": {
            "200": {"description": "Done."},
            "default": {
                "description": "Not done, and why: 400, 401, 403, 404, 409, 413, 429, 502, 503, 504.",
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
            },
        },
    }
    body = [field for field in fields if field.name not in places] if in_body else []
    if body:
        schema: dict[str, Any] = {
            "type": "object",
            "properties": {field.name: {**_schema(field), "description": field.about} for field in body},
        }
        if needed := [field.name for field in body if field.needed]:
            schema["required"] = needed
        operation["requestBody"] = {"content": {"application/json": {"schema": schema}}}
    return operation


def _schema(field: Field) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": field.kind}
    if field.kind == "array":
        schema["items"] = {"type": "string"}
    if field.kind == "object":
        schema["additionalProperties"] = {"type": "string"}
    if field.choices:
        schema["enum"] = [str(choice) for choice in field.choices]
    return schema
