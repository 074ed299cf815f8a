"""Writes docs/reference/api.md: every public name of the library with its signature and docstring.

    python -m tools.api_reference           write the page
    python -m tools.api_reference --check   exit code 1 when the page is not what would be written

`make docs` writes it, and a test compares it, so that the page never says anything else than the code does.
"""

from __future__ import annotations

import ast
import dataclasses
import enum
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import kourou
from kourou.client.producer_settings import ProducerSettings

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "api.md"
LINE_LENGTH = 100


class Chapter(NamedTuple):
    title: str
    names: tuple[str, ...]


CHAPTERS = (
    Chapter("Messages", ("Message", "ReceivedMessage")),
    Chapter(
        "Sending",
        (
            *(
                "Producer",
                "AsyncProducer",
                "ProducerSettings",
                "SendResult",
                "MessageQueue",
                "SendStatus",
                "DelayLevel",
            ),
            *("SendHook", "SendAttempt", "reply_to"),
        ),
    ),
    Chapter(
        "Transactions",
        (
            *("TransactionProducer", "AsyncTransactionProducer", "TransactionState"),
            *("EndTransactionHook", "TransactionEnd"),
        ),
    ),
    Chapter(
        "Being fed",
        (
            *("PushConsumer", "AsyncPushConsumer", "Consumer", "AsyncConsumer", "Delivery"),
            *("ConsumerSettings", "RetryLater", "DeadLetter", "ConsumeHook", "ConsumeAttempt", "App"),
        ),
    ),
    Chapter(
        "Sharing queues",
        (
            *("assign_evenly", "assign_in_turn", "assign_by_hash"),
            *("assign_fixed", "assign_by_room", "assign_near"),
        ),
    ),
    Chapter(
        "Asking for messages",
        ("LitePullConsumer", "AsyncLitePullConsumer", "PullConsumer", "AsyncPullConsumer", "Pulled"),
    ),
    Chapter(
        "Handling a message once",
        ("idempotent", "by_message_id", "by_keys", "Marks", "Mark", "MemoryMarks", "SqliteMarks"),
    ),
    Chapter("The cluster", ("Credentials", "ClientTls")),
    Chapter("Tracing", ("TraceContext", "Telemetry")),
    Chapter("Tests", ("LocalBroker",)),
    Chapter(
        "Errors",
        (
            *(
                "MQError",
                "ConfigError",
                "MissingExtra",
                "AddressTaken",
                "Unreachable",
                "TimedOut",
                "ConnectionLost",
                "Refused",
            ),
            *("NotFound", "NoMaster", "Denied", "Busy", "ProtocolError", "DecompressionLimit", "StoreError"),
            *("StoreLocked", "StoreForeign", "Corrupt", "DiskFault"),
        ),
    ),
)
ELSEWHERE = {"ProducerSettings": ProducerSettings}
"""Not a public name: its fields are the keywords of producers."""


def page() -> str:
    """The whole page."""
    told = {name for chapter in CHAPTERS for name in chapter.names} - set(ELSEWHERE)
    public = set(kourou.__all__) - {"__version__"}
    assert told == public, f"in no chapter, or not public: {told ^ public}"
    parts = [
        "# Every name of the library",
        "Written by `make docs` from the docstrings; [the library](library.md) tells the same as a story.\n"
        "An async form has the methods of the blocking one, awaited.",
        "| | |\n|---|---|\n"
        + "\n".join(
            f"| {chapter.title} | {' '.join(f'[`{name}`](#{name.lower()})' for name in chapter.names)} |"
            for chapter in CHAPTERS
        ),
    ]
    for chapter in CHAPTERS:
        parts.append(f"## {chapter.title}")
        for name in chapter.names:
            parts += _entry(name, ELSEWHERE.get(name) or getattr(kourou, name))
    text = "\n\n".join(parts) + "\n"
    return re.sub(r"(\n- [^\n]*)\n(?=\n- )", r"\1", text)  # one list, not one for each item


def _entry(name: str, thing: Any) -> Iterator[str]:
    yield f"### {name}"
    if inspect.isclass(thing):
        yield from _class(name, thing)
    else:
        yield _fenced(f"{name}{_signature(thing)}")
        yield _prose(thing)


def _class(name: str, thing: type) -> Iterator[str]:
    is_error = issubclass(thing, kourou.MQError)
    if is_error:
        base = thing.__mro__[1].__name__
        yield f"`{name}({base})`"
    elif (
        not issubclass(thing, enum.Enum) and not dataclasses.is_dataclass(thing) and "__init__" in vars(thing)
    ):
        yield _fenced(f"{name}{_signature(vars(thing)['__init__'])}")
    yield _prose(thing)
    fields = _fields(thing)
    if fields:
        yield "| field | | |\n|---|---|---|\n" + "\n".join(fields)
    for member_name, member in vars(thing).items():
        if member_name.startswith("_") or is_error:
            continue
        if isinstance(member, property):
            described = _one_line(inspect.getdoc(member.fget) or "")
            yield f"- `.{member_name}`: `{_type_of(member)}`" + (f" · {described}" if described else "")
        elif isinstance(member, classmethod | staticmethod):
            yield from _method(f"{name}.{member_name}", member.__func__)
        elif inspect.isfunction(member):
            yield from _method(f".{member_name}", member)


def _method(shown: str, method: Callable[..., Any]) -> Iterator[str]:
    prefix = "await " if inspect.iscoroutinefunction(method) else ""
    yield _fenced(f"{prefix}{shown}{_signature(method)}")
    if inspect.getdoc(method):
        yield _prose(method)


def _signature(function: Any) -> str:
    """As it is written, without self, one parameter a line when it is long."""
    signature = inspect.signature(function)
    pieces: list[str] = []
    for parameter in signature.parameters.values():
        if parameter.name not in ("self", "cls"):
            if parameter.kind is parameter.KEYWORD_ONLY and "*" not in pieces:
                pieces.append("*")
            pieces.append(_parameter(parameter))
    returned = signature.return_annotation
    end = "" if returned in (signature.empty, "None") else f" -> {returned}"
    text = f"({', '.join(pieces)}){end}"
    if len(text) <= LINE_LENGTH:
        return text
    return "(\n" + "".join(f"    {piece},\n" for piece in pieces) + f"){end}"


def _parameter(parameter: inspect.Parameter) -> str:
    stars = (parameter.kind is parameter.VAR_POSITIONAL) + 2 * (parameter.kind is parameter.VAR_KEYWORD)
    text = f"{'*' * stars}{parameter.name}"
    if parameter.annotation is not parameter.empty:
        text += f": {parameter.annotation}"
    if parameter.default is not parameter.empty:
        default = parameter.default
        quoted = f'"{default}"' if isinstance(default, str) else getattr(default, "__name__", repr(default))
        text += f" = {quoted}"
    return text


def _type_of(member: property) -> str:
    return str(inspect.signature(member.fget).return_annotation) if member.fget else ""


def _fields(thing: type) -> list[str]:
    """Rows of what a settings class, a tuple or an enumeration holds, with the text below each field."""
    rows = []
    for owner in reversed(thing.__mro__[:-1]):
        if not owner.__module__.startswith("kourou"):
            continue
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(owner))).body
        assert isinstance(tree, ast.ClassDef)
        for node, following in zip(tree.body, [*tree.body[1:], None], strict=True):
            row = _field(node)
            if row is not None:
                rows.append(f"{row} {_one_line(_text_of(following))} |")
    return rows


def _field(node: ast.stmt) -> str | None:
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        name, value = node.target.id, f" = {ast.unparse(node.value)}" if node.value else ""
        kind = ast.unparse(node.annotation)
    elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        name, value, kind = node.targets[0].id, ast.unparse(node.value), ""
    else:
        return None
    if name.startswith("_"):
        return None
    shown = f"{kind}{value}".replace("|", "\\|")
    return f"| `{name}` | `{shown}` |"


def _text_of(node: ast.stmt | None) -> str:
    if (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    ):
        return inspect.cleandoc(node.value.value)
    return ""


def _one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "\\|").strip()


def _prose(thing: Any) -> str:
    """A docstring as Markdown: what is indented in it is code."""
    lines: list[str] = []
    is_code = False
    for line in (inspect.getdoc(thing) or "").splitlines():
        indented = line.startswith("    ")
        if line.strip() and indented != is_code:
            lines += ["```py"] if indented else ["```", ""]
            is_code = indented
        shown = line[4:] if is_code else line
        if is_code and shown[:1].strip() and lines[-1] == "" and lines[-2].startswith("    "):
            lines.append("")  # two empty lines after a function, as ruff wants them here, too
        lines.append(shown)
    text = "\n".join([*lines, "```"] if is_code else lines)
    return re.sub(r"\n+```(\n|$)", r"\n```\1", text)


def _fenced(code: str) -> str:
    return f"```py\n{code}\n```"


def main(arguments: list[str]) -> int:
    if "--check" in arguments:
        return int(PAGE.read_text() != page())
    PAGE.write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
