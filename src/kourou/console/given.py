"""What somebody has filled in: a form, a query, or a JSON object; asked for by name and kind.

A form knows text only, JSON knows numbers and lists, too; both are taken for what is meant. What is not as it
should be is a ConfigError that names the field.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kourou.errors import ConfigError

YES, NO = frozenset({"true", "on", "yes", "1"}), frozenset({"false", "off", "no", "0", ""})

_NEEDED: Any = object()


class Given:
    """The fields of one request."""

    def __init__(self, *sources: Mapping[str, Any]) -> None:
        self._fields = {name: value for source in sources for name, value in source.items()}

    def __contains__(self, name: str) -> bool:
        return self._fields.get(name) not in (None, "", [])

    def raw(self, name: str) -> Any:
        return self._fields.get(name)

    def text(self, name: str, default: str = _NEEDED) -> str:
        value = self._fields.get(name)
        if isinstance(value, list) and len(value) == 1:
            value = value[0]
        if value is None or value == "":
            if default is _NEEDED:
                raise ConfigError(f"{name} is missing")
            return default
        if isinstance(value, bool):
            return "true" if value else "false"
        if not isinstance(value, str | int | float):
            raise ConfigError(f"{name} is {str(value)[:80]!r}; one text is wanted")
        return str(value).strip() if isinstance(value, str) else str(value)

    def texts(self, name: str) -> list[str]:
        """All of them; also one text with commas."""
        value = self._fields.get(name)
        if value is None or value == "":
            return []
        if isinstance(value, str):
            value = value.split(",")
        if not isinstance(value, Sequence) or not all(isinstance(each, str | int) for each in value):
            raise ConfigError(f"{name} is {str(value)[:80]!r}; a list of texts is wanted")
        return [str(each).strip() for each in value if str(each).strip()]

    def number(self, name: str, default: int = _NEEDED, *, least: int = 0, most: int = 2**53) -> int:
        text = self.text(name) if default is _NEEDED else self.text(name, "")
        if text == "":
            return default
        try:
            value = int(text) if len(text) <= 20 else most + 1
        except ValueError:
            raise ConfigError(f"{name} is {text[:80]!r}; a whole number is wanted") from None
        if not least <= value <= most:
            raise ConfigError(f"{name} is {text[:80]}; it can be {least} to {most}")
        return value

    def yes(self, name: str, default: bool = False) -> bool:
        text = self.text(name, "true" if default else "false").lower()
        if text in YES | NO:
            return text in YES
        raise ConfigError(f"{name} is {text[:80]!r}; true or false is wanted")

    def choice(self, name: str, choices: Sequence[str], default: str = _NEEDED) -> str:
        text = self.text(name, default)
        if text not in choices:
            raise ConfigError(f"{name} is {text[:80]!r}; it can be {', '.join(choices)}")
        return text

    def table(self, name: str) -> dict[str, str]:
        """`{"name": "value"}`, or lines of name=value."""
        value = self._fields.get(name)
        if value is None or value == "":
            return {}
        if isinstance(value, dict) and all(isinstance(each, str | int | bool) for each in value.values()):
            return {str(key): str(each) for key, each in value.items()}
        if not isinstance(value, str):
            raise ConfigError(f"{name} is {str(value)[:80]!r}; an object of texts is wanted")
        table = {}
        for line in value.splitlines():
            if line.strip():
                key, equals, rest = line.partition("=")
                if not equals or not key.strip():
                    raise ConfigError(f"{name} has the line {line[:80]!r}; write name=value")
                table[key.strip()] = rest.strip()
        return table
