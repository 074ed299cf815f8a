from __future__ import annotations

import json
import sys

import pytest

from kourou.cli import output
from kourou.cli.output import as_json, as_text, show

HOSTILE = "a\x1b[2Jb\x9b31mc\rd\u202ee\x00f\x7f\n\ud800"


def test_nothing_a_server_says_can_move_the_cursor() -> None:
    assert as_text(HOSTILE) == "a\\x1b[2Jb\\x9b31mc\\rd\\u202ee\\x00f\\x7f\\n\\ud800"
    assert as_text(HOSTILE.encode(errors="surrogatepass")).isprintable()


def test_other_people_s_letters_stay_readable() -> None:
    assert as_text("één ☕ 消息") == "één ☕ 消息"
    assert as_json({"body": "één ☕ 消息"}) == '{"body": "één ☕ 消息"}'


def test_bytes_that_are_no_text_are_shown_as_escapes() -> None:
    assert as_text(b"caf\xc3\xa9 \xff") == "café \\xff"


@pytest.mark.parametrize("indent", [None, 2])
def test_json_is_harmless_and_still_says_the_same(indent: int | None) -> None:
    printed = as_json([{"body": HOSTILE}], indent=indent)
    assert printed.replace("\n", "").isprintable()
    assert json.loads(printed) == [{"body": HOSTILE}]


def test_nothing_is_nothing() -> None:
    assert as_text(None) == ""


ROWS = [{"topic": "orders", "queues": 8}, {"topic": "a\x1b[2J", "queues": 16}]


def test_a_plain_table_is_aligned(capsys: pytest.CaptureFixture[str]) -> None:
    show(ROWS, ("topic", "queues"), "table")
    assert capsys.readouterr().out == "topic     queues\norders    8\na\\x1b[2J  16\n"


def test_an_empty_table_has_its_headings(capsys: pytest.CaptureFixture[str]) -> None:
    show([], ("topic", "read_queues"), "table")
    assert capsys.readouterr().out == "topic  read queues\n"


def test_json_is_one_array_and_jsonl_one_object_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    show(ROWS, ("topic",), "json")
    assert json.loads(capsys.readouterr().out) == ROWS
    show(ROWS, ("topic",), "jsonl")
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == ROWS


def test_jsonl_prints_each_row_as_it_comes(capsys: pytest.CaptureFixture[str]) -> None:
    seen = []

    def rows() -> object:
        for number in range(3):
            yield {"number": number}
            seen.append(capsys.readouterr().out)

    show(rows(), ("number",), "jsonl")  # type: ignore[arg-type]
    assert seen == ['{"number": 0}\n', '{"number": 1}\n', '{"number": 2}\n']


def test_a_terminal_gets_a_rich_table_with_the_same_cells(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "is_terminal", lambda: True)
    monkeypatch.setenv("NO_COLOR", "1")
    show([*ROWS, {"topic": "[red]not markup[/red]", "queues": 1}], ("topic", "queues"), "table")
    printed = capsys.readouterr().out
    assert "orders" in printed
    assert "a\\x1b[2J" in printed
    assert "[red]not markup[/red]" in printed
    assert "\x1b" not in printed


def test_a_pipe_is_no_terminal() -> None:
    assert output.is_terminal() == sys.stdout.isatty()
