"""Secrets and what proves one are compared in constant time: by `hmac.compare_digest`, never by `==`.

No run shows the difference, so it is the sources that are looked at.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import kourou

SOURCES = Path(kourou.__file__).parent
FOLDERS = ("access", "broker", "client", "nameserver", "protocol", "remoting", "replication")
SECRETS = re.compile(r"secret|signature|proof|password|sealed", re.IGNORECASE)


def plain_comparisons(source: str) -> list[str]:
    """Every `==` and `!=` with a side that is named like a secret; capitals are names of fields."""
    return [
        ast.unparse(node)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Compare)
        and any(isinstance(sign, (ast.Eq, ast.NotEq)) for sign in node.ops)
        and any(_is_secret(side) for side in (node.left, *node.comparators))
    ]


def _is_secret(side: ast.expr) -> bool:
    text = ast.unparse(side)
    return not isinstance(side, ast.Constant) and not text.isupper() and bool(SECRETS.search(text))


def test_no_secret_is_compared_plainly() -> None:
    paths = [path for folder in FOLDERS for path in sorted((SOURCES / folder).rglob("*.py"))]
    found = {str(path): plain_comparisons(path.read_text()) for path in paths}
    assert len(found) > 100
    assert {path: each for path, each in found.items() if each} == {}


def test_a_plain_comparison_is_seen() -> None:
    assert plain_comparisons("def check(): return request.signature == expected") != []
    assert plain_comparisons("if given != account.secret: raise Denied") != []
    assert plain_comparisons("if name == SIGNATURE: pass\nhmac.compare_digest(secret, given)") == []
