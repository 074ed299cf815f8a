"""What the documentation says works: every command runs, every link leads somewhere, every page is found."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.docs.pages import ROOT, SHELL_LANGUAGES, Block, BlockFailed, Reader, all_pages, blocks_in

pytestmark = pytest.mark.docs

PAGES = {str(page.relative_to(ROOT)): page for page in all_pages()}
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} +(.+?)\s*$", re.MULTILINE)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", PAGES)
def test_what_a_page_tells_the_reader_to_run_runs(name: str, tmp_path: Path) -> None:
    with Reader(tmp_path) as reader:
        for block in blocks_in(PAGES[name].read_text()):
            reader.follow(block)


@pytest.mark.parametrize("name", PAGES)
def test_every_shell_block_shows_what_is_typed(name: str) -> None:
    unmarked = [
        block.line
        for block in blocks_in(PAGES[name].read_text())
        if block.language in SHELL_LANGUAGES and not block.commands() and not block.reason_not_to_run
    ]
    assert not unmarked, f"no line starts with `$ `, so nothing is run: {name}, lines {unmarked}"


@pytest.mark.parametrize("name", PAGES)
def test_every_link_leads_somewhere(name: str) -> None:
    assert broken_links(PAGES[name]) == []


def test_every_page_under_docs_can_be_reached_from_the_readme() -> None:
    reached: set[Path] = set()
    to_read = [ROOT / "README.md"]
    while to_read:
        page = to_read.pop()
        if page not in reached and page.suffix == ".md" and page.exists():
            reached.add(page)
            to_read += [link.target for link in links_in(page)]
    lost = [name for name, page in PAGES.items() if page not in reached]
    assert lost == []


def test_every_make_target_that_is_named_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {
        (name, target)
        for name, page in PAGES.items()
        for target in re.findall(
            r"`(?:\$ )?make ([a-z-]+)|^\$ make ([a-z-]+)", page.read_text(), re.MULTILINE
        )
        for target in target
        if target
    }
    assert {(name, target) for name, target in named if target not in targets} == set()
    assert any(target == "demo" for _, target in named)  # or this test reads nothing


class Link(NamedTuple):
    text: str
    target: Path
    anchor: str


def links_in(page: Path) -> list[Link]:
    """The links of a page that stay in this repository."""
    links = []
    for text in LINK.findall(_without_code(page.read_text())):
        if not re.match(r"[a-z]+:", text):
            path, _, anchor = text.partition("#")
            links.append(Link(text, (page.parent / path).resolve() if path else page, anchor))
    return links


def broken_links(page: Path) -> list[str]:
    return [
        link.text
        for link in links_in(page)
        if not link.target.exists()
        or (link.anchor and link.anchor not in anchors_of(link.target.read_text()))
    ]


def anchors_of(markdown: str) -> set[str]:
    """The anchors that the headings of a page become: lower case, no punctuation, dashes for spaces."""
    plain = (
        re.sub(r"[^\w\- ]", "", heading.lower())
        for heading in HEADING.findall(_without_code(markdown, inline=False))
    )
    return {heading.replace(" ", "-") for heading in plain}


def _without_code(markdown: str, inline: bool = True) -> str:
    markdown = re.sub(r"^(```+).*?^\1\s*$", "", markdown, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`", "", markdown) if inline else markdown


def test_a_block_is_what_stands_between_fences_with_the_comment_above_it() -> None:
    page = "# t\n\n<!-- not executed: needs Java -->\n```console\n$ a \\\n> b\nout\n$ c\n```\ntext\n"
    page += "```python\nx = 1\n```\n"
    shell, python = blocks_in(page)
    assert (shell.line, shell.language, shell.reason_not_to_run) == (4, "console", "needs Java")
    assert shell.commands() == ["a \\\nb", "c"]
    assert python == Block(line=11, language="python", text="x = 1\n", remark="")


def test_a_failing_command_fails_the_page_and_says_which(tmp_path: Path) -> None:
    with Reader(tmp_path) as reader:
        reader.follow(Block(1, "console", "$ true\n", ""))
        with pytest.raises(BlockFailed, match=r"(?s)line 7: exit code 1: .*no such thing"):
            reader.follow(Block(7, "console", "$ echo no such thing; false | true\n", ""))


def test_what_runs_in_the_background_is_there_for_the_next_block_and_gone_afterwards(tmp_path: Path) -> None:
    with Reader(tmp_path) as reader:
        server = "$ echo $$ > pid; echo ready; sleep 60\n"
        reader.follow(Block(1, "console", server, 'background until "ready"'))
        reader.follow(Block(5, "console", '$ kill -0 "$(cat pid)"\n', ""))
        process = Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}/stat")
    assert not process.exists()


def test_the_usual_ports_are_replaced_the_same_way_everywhere_on_a_page(tmp_path: Path) -> None:
    same = "assert Path('port').read_text() == '9876\\n' != '9' + '876\\n'"
    with Reader(tmp_path) as reader:
        reader.follow(Block(1, "console", "$ echo 9876 > port\n", ""))
        reader.follow(Block(4, "python", f"from pathlib import Path\n{same}\n", ""))


def test_links_and_anchors_are_checked(tmp_path: Path) -> None:
    (tmp_path / "b.md").write_text("# Two words, `code`\n")
    page = tmp_path / "a.md"
    page.write_text(
        "[x](b.md) [y](b.md#two-words-code) [z](b.md#other) [w](c.md) `[v](d.md)` [u](https://a.b)\n"
    )
    assert broken_links(page) == ["b.md#other", "c.md"]
