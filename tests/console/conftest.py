"""One console for all tests of it, with something of everything behind it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.console.cluster import Person, Program, Running, fill, first_login, running_console, token_for


@pytest.fixture(scope="session")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running_console(tmp_path_factory.mktemp("console") / "console") as running:
        fill(running.name_server)
        first_login(running)
        yield running


@pytest.fixture(scope="session")
def admin(console: Running) -> Iterator[Person]:
    person = Person(console)
    yield person
    person.close()


@pytest.fixture(scope="session")
def viewer(console: Running, admin: Person) -> Iterator[Person]:
    person = admin.colleague(console, "vera", "viewer")
    yield person
    person.close()


@pytest.fixture(scope="session")
def operator(console: Running, admin: Person) -> Iterator[Person]:
    person = admin.colleague(console, "otto", "operator")
    yield person
    person.close()


@pytest.fixture(scope="session")
def program(console: Running, operator: Person) -> Iterator[Program]:
    """A program of the operator's."""
    with Program(console, token_for(operator)) as client:
        yield client
