from __future__ import annotations

import errno
import socket
import ssl

from kourou.remoting.failures import in_words


def test_an_error_of_the_system_is_said_in_its_words() -> None:
    refused = ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed ('127.0.0.1', 1)")
    assert in_words(refused) == "Connection refused"


def test_a_name_that_is_not_known_keeps_its_text() -> None:
    unknown = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    assert in_words(unknown) == "Name or service not known"


def test_an_error_without_number_or_text_is_at_least_named() -> None:
    assert in_words(TimeoutError()) == "TimeoutError"
    assert in_words(TimeoutError("no answer within 3 s")) == "no answer within 3 s"


def test_a_tls_failure_says_what_to_look_at() -> None:
    wrong = ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number")
    assert "is TLS on at both ends?" in in_words(wrong)
