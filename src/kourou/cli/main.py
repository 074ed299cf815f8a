"""The `kourou` command. Parses and prints; decides nothing.

Subcommands are imported when they are called, so that `kourou --help` does not pay for a broker. Every
foreseen error becomes one line on stderr and its exit code:

    0 ok · 1 failure · 2 usage or configuration · 3 not found · 4 denied · 5 unreachable · 6 check failed
    74 disk fault
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

from kourou import __version__
from kourou.errors import MQError

if TYPE_CHECKING:
    import click

INTERRUPTED = 130

COMMANDS = {
    "start": ("kourou.cli.start", "start", "Run a name server and a broker in this process."),
    "nameserver": ("kourou.cli.nameserver", "nameserver", "Run a name server."),
    "broker": ("kourou.cli.broker", "broker", "Run a broker."),
    "topic": ("kourou.cli.topic", "topic", "Make topics, list them, see where they are."),
    "message": ("kourou.cli.message", "message", "Send messages, and watch them arrive."),
    "run": ("kourou.cli.run", "run", "Run the handlers of an App."),
    "store": ("kourou.cli.store", "store", "Check a stopped broker's data folder, show it, repair it."),
    "config": ("kourou.cli.config", "config", "See what a server would run with, and who said so."),
}


def main() -> None:
    """The console script."""
    try:
        import click  # noqa: F401
        import rich  # noqa: F401
    except ImportError:
        print("kourou: the command line needs an extra: pip install 'kourou[server]'", file=sys.stderr)
        sys.exit(2)
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Carry out one command line; returns the exit code."""
    import click

    try:
        outcome = _group().main(args=arguments, prog_name="kourou", standalone_mode=False)
        return outcome if isinstance(outcome, int) else 0
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.Abort:
        return INTERRUPTED
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except MQError as error:
        _complain(str(error))
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()  # whoever read our output has gone, and so does the interpreter's last flush
        return 1
    except OSError as error:
        what = error.strerror or str(error)
        _complain(f"{error.filename}: {what}" if error.filename else what)
        return 1


def _complain(what: str) -> None:
    """One line, whatever a server put into it."""
    from kourou.cli.output import as_text

    print(f"kourou: {as_text(what)}", file=sys.stderr)


def _group() -> click.Group:
    import click

    class Commands(click.Group):
        def list_commands(self, ctx: click.Context) -> list[str]:
            return list(COMMANDS)

        def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
            entry = COMMANDS.get(name)
            if entry is None:
                return None
            module, attribute, _ = entry
            command: click.Command = getattr(import_module(module), attribute)
            return command

        def resolve_command(
            self, ctx: click.Context, args: list[str]
        ) -> tuple[str | None, click.Command | None, list[str]]:
            try:
                return super().resolve_command(ctx, args)
            except click.UsageError:
                from difflib import get_close_matches

                near = get_close_matches(args[0], COMMANDS, n=1)
                hint = f" Did you mean '{near[0]}'?" if near else " See kourou --help."
                raise click.UsageError(f"No such command '{args[0]}'.{hint}", ctx) from None

        def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
            with formatter.section("Commands"):
                formatter.write_dl([(name, about) for name, (_, _, about) in COMMANDS.items()])

    @click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
    @click.version_option(__version__, prog_name="kourou")
    def kourou() -> None:
        """A message queue that speaks Apache RocketMQ."""

    return kourou
