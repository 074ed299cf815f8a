"""`import kourou` offers every public name and pays for none of them in advance."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys

import pytest

import kourou
import kourou.errors


@pytest.mark.parametrize("name", kourou.__all__)
def test_every_public_name_can_be_had(name: str) -> None:
    assert getattr(kourou, name) is not None
    assert name in dir(kourou)


def test_every_error_is_public() -> None:
    assert set(kourou.errors.__all__) <= set(kourou.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="DefaultMQProducer"):
        _ = kourou.DefaultMQProducer


def test_importing_the_package_imports_nothing_heavy() -> None:
    loaded = _modules_after("import kourou")
    assert "kourou" in loaded
    assert not loaded & {"asyncio", "socket", "ssl", "msgspec", "json", "kourou.message", "kourou.client"}


def test_a_client_does_not_pay_for_the_server() -> None:
    loaded = _modules_after("import kourou; kourou.Producer; kourou.PullConsumer; kourou.Message")
    assert "kourou.client" in loaded
    servers = ("kourou.broker", "kourou.store", "kourou.nameserver", "kourou.local", "kourou.remoting.server")
    assert not [name for name in loaded if name.startswith(servers)]


def test_a_client_does_not_pay_for_what_few_programs_use() -> None:
    loaded = _modules_after("import kourou; kourou.Producer; kourou.PushConsumer; kourou.Message")
    assert "asyncio" in loaded
    rare = {"json", "hashlib", "ipaddress", "tomllib", "sqlite3", "kourou.access.credentials"}
    rare |= {"dataclasses"}  # to define one takes most of a millisecond: settings of clients are Structs
    rare |= {
        f"kourou.client.{name}"
        for name in ("app", "idempotence", "lookups", "options", "reading", "telemetry", "trace")
    }
    assert not loaded & rare


@pytest.mark.parametrize(
    "name",
    ["Producer", "TransactionProducer", "PushConsumer", "Consumer", "PullConsumer", "LitePullConsumer"],
)
def test_both_forms_of_a_client_have_the_same_words(name: str) -> None:
    """Every public method and parameter, and its default, is there in the blocking and in the async form."""
    assert _words_of(getattr(kourou, name)) == _words_of(getattr(kourou, f"Async{name}"))


def _words_of(client: type) -> dict[str, list[tuple[str, object]]]:
    public = [word for word in dir(client) if not word.startswith("_")]
    methods = {word: getattr(client, word) for word in [*public, "__init__"]}
    return {
        word: [(each.name, each.default) for each in inspect.signature(method).parameters.values()]
        if callable(method)
        else []
        for word, method in methods.items()
    }


def _modules_after(statement: str) -> set[str]:
    """The modules a fresh interpreter holds after `statement`, beyond those it starts with."""
    program = f"import sys; before = set(sys.modules); {statement}; print(sorted(set(sys.modules) - before))"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(json.loads(run.stdout.replace("'", '"')))
