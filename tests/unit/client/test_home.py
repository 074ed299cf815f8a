from __future__ import annotations

import os

import pytest

from kourou.client import home
from kourou.client.home import Home
from kourou.errors import ConfigError


def test_a_client_serves_the_process_it_was_made_in_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = Home("producer")
    ours.check()
    assert ours.is_here
    monkeypatch.setattr(os, "getpid", lambda: 4242)
    monkeypatch.setattr(home, "_generation", home._generation)  # to be as it was afterwards
    home._forked()  # what a child does first
    assert not ours.is_here
    with pytest.raises(ConfigError, match=r"this producer was made in process \d+, and this is process 4242"):
        ours.check()
    Home("producer").check()
