from __future__ import annotations

from typing import Any

import pytest

from kourou.access.signatures import signature
from kourou.client.signing import Credentials
from kourou.errors import ConfigError
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import request
from kourou.protocol.headers import GetRoute


def test_a_request_carries_our_name_and_a_signature_over_everything_it_says() -> None:
    command = request(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRoute("t"), b"body")
    Credentials("alice", "secret").sign(command)
    fields = dict(command.fields)
    given = fields.pop("Signature")
    assert fields["AccessKey"] == "alice"
    assert "SecurityToken" not in fields
    assert given == signature(fields, b"body", "secret")
    assert command.parse(GetRoute).topic == "t"


def test_a_request_that_is_sent_again_is_signed_again() -> None:
    command = request(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRoute("t"))
    credentials = Credentials("alice", "secret", "token")
    credentials.sign(command)
    first = dict(command.fields)
    credentials.sign(command)
    assert dict(command.fields) == first
    assert first["SecurityToken"] == "token"


def test_a_secret_is_never_shown() -> None:
    assert "hidden" not in repr(Credentials("alice", "hidden", "hidden"))


@pytest.mark.parametrize("given", [("", "secret"), ("alice", ""), ("alice", None)])
def test_credentials_that_are_none_are_an_error(given: tuple[Any, Any]) -> None:
    with pytest.raises(ConfigError, match="must be a text"):
        Credentials(*given)
