"""Writes docs/reference/command-line.md: every command with what it takes, as the code says it.

    python -m tools.command_line_reference           write the page
    python -m tools.command_line_reference --check   exit code 1 when the page is not what would be written

`make docs` writes it, and a test compares it, so that the page never says anything else than `--help` does.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import click

from kourou.cli.exit_codes import as_table
from kourou.cli.main import COMMANDS
from kourou.cli.mqadmin import NOT_HERE, all_verbs

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "command-line.md"

LINE_LENGTH = 125

INTRODUCTION = """\
# The command line

`kourou` comes with the extra `server`: `pip install 'kourou[server]'`. Every command has `--help`; this
page is made from the same words. `kourou completion bash` (or `zsh`, `fish`) prints what a shell needs to
complete commands.

{table}

Servers run in the foreground until SIGTERM or Ctrl-C, answer what they are working on, close the store
cleanly and end with 0; a second Ctrl-C does not wait. What a person wants to know is on stdout, logs and
notes are on stderr.

## Options of all commands that ask a cluster

| option | default | meaning |
|---|---|---|
| `-n`, `--name-server` | see below | `host:port`, several parted by `;` |
| `--context` | see below | a cluster by its name |
| `-o`, `--output` | `table` | `table`, `wide` (all columns), `json` (an array), `jsonl` (objects), `csv` |
| `--no-headers` | off | tables and CSV without their first line |
| `--dry-run` | off | commands that change something only show what they would do |
| `-y`, `--yes` | off | commands that change something do not ask; needed where nobody can be asked |

Which cluster is meant is said by the first of these that speaks: `-n`, `--context`, `NAMESRV_ADDR`,
`KOUROU_CONTEXT`, the current context of `kourou context`, and at last `127.0.0.1:9876`. Who we are is said
by `KOUROU_ACCESS_KEY` and `KOUROU_SECRET_KEY` (or `KOUROU_SECRET_KEY_FILE`), else by the context; no secret
is taken from the command line.

Names of JSON fields and CSV columns are stable. Tables are for people: their headings and widths may
change. There is no colour where no terminal is, or `NO_COLOR` is set. Text that comes from a server or a
message cannot move the cursor or colour your terminal: control characters are shown as what they are, and a
CSV cell is never a formula.
"""

END = """\
## Exit codes

{codes}

A failure is one line on stderr that names the value and the way out; no stack trace. `kourou check …
--nagios` ends with the codes of Nagios instead.
"""


def main() -> int:
    if "--check" in sys.argv[1:]:
        return 0 if PAGE.read_text() == page() else 1
    PAGE.write_text(page())
    print(f"written to {PAGE}")
    return 0


def page() -> str:
    parts = [INTRODUCTION.format(table=_table())]
    parts += [_section(name, command) for name, command in commands().items()]
    return "\n".join([*parts, END.format(codes=as_table())])


def commands() -> dict[str, click.Command]:
    """Every command that can be carried out, by its whole name."""
    found: dict[str, click.Command] = {}
    for name, (module, attribute, _) in COMMANDS.items():
        root: click.Command = getattr(import_module(module), attribute)
        found.update(leaves(f"kourou {name}", root))
    return found


def leaves(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        yield name, command
        return
    if command.invoke_without_command:
        yield name, command
    for child, below in command.commands.items():
        yield from leaves(f"{name} {child}", below)


def _table() -> str:
    lines = ["| command | what it does |", "|---|---|"]
    for name, (module, attribute, about) in COMMANDS.items():
        root: click.Command = getattr(import_module(module), attribute)
        whole = dict(leaves(f"kourou {name}", root))
        links = " · ".join(
            f"[`{full if index == 0 else full.removeprefix(f'kourou {name} ')}`](#{full.replace(' ', '-')})"
            for index, full in enumerate(whole)
        )
        lines.append(f"| {links} | {about} |")
    return "\n".join(lines)


def _section(name: str, command: click.Command) -> str:
    arguments = [each for each in command.params if isinstance(each, click.Argument)]
    usage = " ".join([name, *(_argument(each) for each in arguments)])
    about = textwrap.fill(f"`{usage}`: {_words(command)}", LINE_LENGTH, break_long_words=False)
    lines = [f"## {name}", "", about, ""]
    rows = [_row(each) for each in command.params if isinstance(each, click.Option) and not _is_shared(each)]
    if rows:
        lines += ["| option | default | meaning |", "|---|---|---|", *rows, ""]
    if name == "kourou mqadmin":
        lines += _verbs()
    return "\n".join(lines)


def _argument(argument: click.Argument) -> str:
    shown = argument.make_metavar(click.Context(click.Command("x")))
    return shown.replace("|", "\\|") if "|" in shown else shown


def _words(command: click.Command) -> str:
    text = " ".join((command.help or "").split())
    return (text[0].lower() + text[1:]) if text else ""


def _is_shared(option: click.Option) -> bool:
    usual = {
        "--output": "How to print",
        "--no-headers": "Tables and CSV",
        "--dry-run": "Only show what would be done.",
        "--yes": "Do it without asking.",
        "--name-server": "Name server host:port",
        "--context": "A cluster by its name",
    }
    return any((option.help or "").startswith(usual[name]) for name in option.opts if name in usual)


def _row(option: click.Option) -> str:
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    meaning = re.sub(r" *\[default: .*?\]", "", option.help or "").strip()
    if isinstance(option.type, click.Choice):
        words = ", ".join(f"`{each}`" for each in option.type.choices)
        meaning = f"{meaning} {words}".strip()
    return f"| {names} | {_default(option)} | {meaning.replace('|', chr(92) + '|')} |"


def _default(option: click.Option) -> str:
    if option.is_flag:
        return "off" if option.default is not True and not option.secondary_opts else ""
    default = option.default
    if default in (None, "", ()) or repr(default) == "Sentinel.UNSET":
        return ""
    return f"`{default}`".replace("|", "\\|")


def _verbs() -> list[str]:
    lines = ["| verb | flags | |", "|---|---|---|"]
    for name, verb in sorted(all_verbs().items()):
        flags = " ".join(f"`-{flag.short}`" if flag.short else f"`--{flag.long}`" for flag in verb.flags)
        lines.append(f"| `{name}` | {flags} | {verb.about} |")
    lines += ["", "Verbs of the original that do not apply, and what is said of them:", ""]
    lines += ["| verb | why |", "|---|---|"]
    lines += [f"| `{name}` | {why} |" for name, why in sorted(NOT_HERE.items())]
    return [*lines, ""]


if __name__ == "__main__":
    sys.exit(main())
