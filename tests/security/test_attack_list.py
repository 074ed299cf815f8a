"""The list of attacks, the tests and the page agree."""

from __future__ import annotations

import subprocess
import sys

from tests.security.__main__ import PAGE, page_with_table
from tests.security.attack_list import ROWS, TESTS, counts_line, numbered_tests, shown_by


def test_every_attack_of_the_list_is_there_once() -> None:
    assert [row.number for row in ROWS] == list(range(1, 73))


def test_every_row_has_tests_or_says_what_it_waits_for() -> None:
    assert [row.number for row in ROWS if bool(shown_by(row)) == bool(row.waits_for)] == []


def test_every_numbered_test_belongs_to_a_row() -> None:
    assert set(numbered_tests()) <= {row.number for row in ROWS}


def test_tests_that_are_named_exist() -> None:
    for row in ROWS:
        for name in row.also:
            path, _, test = name.partition("::")
            text = (TESTS.parent / path).read_text()
            assert not test or f"def {test}(" in text, name


def test_the_page_has_the_list_as_it_is() -> None:
    text = PAGE.read_text()
    assert page_with_table(text) == text, "write it anew: python -m tests.security --write"


def test_the_counts_are_printed_by_one_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.security"],
        cwd=TESTS.parent,
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    assert done.stdout.splitlines()[-1] == counts_line()
