"""The `kourou` command. Parses and prints; decides nothing.

Subcommands are imported when they are called, so that `kourou --help` does not pay for a broker. Every
foreseen error becomes one line on stderr and its code of `exit_codes`.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

from kourou import __version__
from kourou.cli.exit_codes import FAILED, INTERRUPTED, USAGE
from kourou.errors import MQError

if TYPE_CHECKING:
    import click

COMMANDS = {
    "start": ("kourou.cli.start", "start", "Run a name server and a broker in this process."),
    "nameserver": ("kourou.cli.nameserver", "nameserver", "Run a name server."),
    "broker": ("kourou.cli.broker", "broker", "Run a broker; drain one, promote another."),
    "cluster": ("kourou.cli.cluster", "cluster", "Run a whole cluster on this machine."),
    "topic": ("kourou.cli.topic", "topic", "Make topics, list them, see where they are."),
    "group": ("kourou.cli.group", "group", "See who consumes and how far they are; move where they go on."),
    "message": ("kourou.cli.message", "message", "Send messages, watch them come, find those that came."),
    "dlq": ("kourou.cli.dlq", "dlq", "See dead letters, send them again, let them go."),
    "tx": ("kourou.cli.tx", "tx", "See half messages, resume, commit or roll back."),
    "timer": ("kourou.cli.timer", "timer", "See messages that wait for their time, take them back."),
    "console": ("kourou.cli.console", "console", "Run the web console and the HTTP interface."),
    "run": ("kourou.cli.run", "run", "Run the handlers of an App."),
    "store": ("kourou.cli.store", "store", "Check a stopped broker's data folder, show it, repair it."),
    "pipeline": (
        "kourou.cli.pipeline",
        "pipeline",
        "Archive, restore, redrive, measure and audit, on Spark.",
    ),
    "user": ("kourou.cli.user", "user", "See, make, change and delete users."),
    "acl": ("kourou.cli.acl", "acl", "See and change what users and accounts may do."),
    "config": ("kourou.cli.config", "config", "See what a server would run with, and who said so."),
    "context": ("kourou.cli.context", "context", "Name clusters, and choose the one that commands are for."),
    "check": ("kourou.cli.check", "check", "Check a cluster for a monitoring system."),
    "doctor": ("kourou.cli.doctor", "doctor", "Look at what usually goes wrong, and say what to do."),
    "top": ("kourou.cli.top", "top", "Watch brokers, rates, lag and slow groups."),
    "mqadmin": (
        "kourou.cli.mqadmin",
        "mqadmin",
        "The verbs, flags and columns of RocketMQ's own admin tool.",
    ),
    "bench": ("kourou.cli.bench", "bench", "Load a cluster, and say how fast it is."),
    "completion": ("kourou.cli.completion", "completion", "Print what a shell needs to complete commands."),
}


def main() -> None:
    """The console script."""
    try:
        import click  # noqa: F401
        import rich  # noqa: F401
    except ImportError:
        print("kourou: the command line needs an extra: pip install 'kourou[server]'", file=sys.stderr)
        sys.exit(USAGE)
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Carry out one command line; returns the exit code."""
    import click

    try:
        outcome = group().main(args=arguments, prog_name="kourou", standalone_mode=False)
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
        return FAILED
    except OSError as error:
        what = error.strerror or str(error)
        _complain(f"{error.filename}: {what}" if error.filename else what)
        return FAILED


def _complain(what: str) -> None:
    """One line, whatever a server put into it."""
    from kourou.cli.output import as_text

    print(f"kourou: {as_text(what)}", file=sys.stderr)


def _tell_version(context: click.Context, _: click.Parameter, is_asked: bool) -> None:
    import platform

    from kourou import native

    if is_asked:
        print(f"kourou, version {__version__}")
        print(f"Python {platform.python_version()}, {native.described()}")
        context.exit()


def group() -> click.Group:
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
    @click.option(
        "--version",
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_tell_version,
        help="Show the version and exit.",
    )
    def kourou() -> None:
        """A message queue that speaks Apache RocketMQ."""

    return kourou
