"""Everything the console says, it says in both languages."""

from __future__ import annotations

import re
from pathlib import Path

import kourou.console
from kourou.console.chinese import CHINESE
from kourou.console.deeds.brokers import CLEANINGS
from kourou.console.login import Role
from kourou.console.pages.access import TOLD
from kourou.console.pages.topics import KINDS
from kourou.console.pages.waiting import OUTCOMES
from kourou.console.showing import SECTIONS
from kourou.console.texts import preferred, say
from kourou.console.visit import THEMES

FOLDER = Path(kourou.console.__file__).parent
SAID = re.compile(r"""\b(?:t|say)\(\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)')""")


def texts() -> set[str]:
    found = {
        *(name for _, name, _ in SECTIONS),
        *(role.value for role in Role),
        *THEMES,
        *KINDS,
        *TOLD,
        *OUTCOMES.values(),
        *(what for what, _ in CLEANINGS.values()),
        *("open", "discarded", "clustering", "broadcasting", "unspecified"),
    }
    for path in [*FOLDER.rglob("*.html"), *FOLDER.rglob("*.py")]:
        found |= {one or other for one, other in SAID.findall(path.read_text())}
    return found


def test_every_text_is_there_in_chinese_with_the_same_places() -> None:
    said = texts()
    assert len(said) > 300
    missing = sorted(said - CHINESE.keys())
    assert missing == []
    for english, chinese in CHINESE.items():
        assert set(re.findall(r"{\w+}", english)) == set(re.findall(r"{\w+}", chinese)), english


def test_no_text_is_translated_that_nobody_says() -> None:
    assert sorted(CHINESE.keys() - texts()) == []


def test_a_browser_gets_the_language_it_asks_for() -> None:
    assert preferred("zh-CN,zh;q=0.9,en;q=0.8") == "zh"
    assert preferred("de-DE,fr;q=0.5") == "en"
    assert preferred("de,en;q=0.9,zh;q=0.8") == "en"
    assert preferred("," * 10_000) == "en"
    assert say("zh", "{count} today", count=3) == "今日 3"
    assert say("en", "{count} today", count=3) == "3 today"
    assert say("zh", "no such text") == "no such text"
