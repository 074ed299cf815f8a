"""Results as JSON knows them: dataclasses and wire structs become objects, bytes and odd keys become text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

import msgspec

from kourou.message import ReceivedMessage


def plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Enum):
        return plain(value.value)
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()  # halves of characters have no bytes
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, msgspec.Struct):
        told = {name: getattr(value, name) for name in value.__struct_fields__}
        return {name: plain(each) for name, each in told.items() if each is not msgspec.UNSET}
    if isinstance(value, Mapping):
        return {_key(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(each) for each in value]
    return str(value)


def _key(key: Any) -> str:
    if isinstance(key, msgspec.Struct):  # a queue, say
        return "/".join(str(getattr(key, name)) for name in key.__struct_fields__)
    return str(plain(key))


def received(message: ReceivedMessage, receipt: str | None = None) -> dict[str, Any]:
    """A message for one who receives it."""
    from kourou.admin.messages import described

    told = described(message)
    return told if receipt is None else {"receipt": receipt, **told}
