"""`python -m tests.security`: the attack list, each row with its tests, and the counts.

With `--table` the rows as they stand in `docs/security.md`; `--write` puts them there.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.security.attack_list import ROWS, counts_line, shown_by, table

PAGE = Path(__file__).resolve().parents[2] / "docs" / "security.md"
BEGIN = "<!-- attack list: made by python -m tests.security --write -->\n"
END = "<!-- end of the attack list -->\n"


def page_with_table(text: str) -> str:
    """The page with the rows as they are now."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\nCounts: {counts_line()}.\n\n{table()}\n{END}{after}"


def main(arguments: list[str]) -> None:
    if "--write" in arguments:
        PAGE.write_text(page_with_table(PAGE.read_text()))
    elif "--table" in arguments:
        print(table(), end="")
    else:
        for row in ROWS:
            state = f"{len(shown_by(row)):3} tests" if shown_by(row) else f"n/a: waits for {row.waits_for}"
            print(f"A{row.number:<3} {state:10}  {row.attack}")
    print(counts_line())


if __name__ == "__main__":
    main(sys.argv[1:])
