"""What the console says, in the reader's language. English is in the sources, Chinese in `chinese.py`."""

from __future__ import annotations

from typing import Final

from kourou.console.chinese import CHINESE

LANGUAGES: Final = {"en": "English", "zh": "中文"}


def say(language: str, text: str, /, **values: object) -> str:
    """`text` in this language, with its {places} filled in."""
    said = CHINESE.get(text, text) if language == "zh" else text
    return said.format(**values) if values else said


def preferred(accept_language: str) -> str:
    """The first language of a browser's list that we speak."""
    for part in accept_language[:200].split(","):
        tag = part.partition(";")[0].strip().lower()
        if tag[:2] in LANGUAGES:
            return tag[:2]
    return "en"
