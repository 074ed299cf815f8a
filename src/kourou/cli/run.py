"""`kourou run module:app`: the handlers of an App, in this process or in one that starts anew on changes."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import time
from traceback import print_exception
from types import TracebackType

import click

from kourou.cli.exit_codes import FAILED
from kourou.cli.serving import log_flags, log_options, log_to_stderr, serve
from kourou.client.app import App
from kourou.doors.files import RealFiles
from kourou.errors import ConfigError

_BEFORE_THE_MODULE = (__name__, "importlib")
LOOK_SECONDS = 0.5
STOP_SECONDS_MAX = 15.0


@click.command()
@click.argument("target", metavar="MODULE:APP")
@click.option(
    "-n", "--name-server", help="host:port, several separated by ';'.  [default: what the App says]"
)
@click.option("--reload", is_flag=True, help="Start anew when a .py file below the current folder changes.")
@log_options("info")
def run(target: str, name_server: str | None, reload: bool, log_level: str) -> int:
    """Run the handlers of an App until Ctrl-C."""
    if reload:
        return _run_again_and_again(target, name_server, log_flags(log_level))
    log_to_stderr(log_level)
    app = load(target)
    if name_server:
        app.name_server = name_server
    return serve(lambda: app, lambda: click.echo(f"{target} is running, Ctrl-C stops it"), lambda: None)


def load(target: str) -> App:
    """The App that `module:name` stands for; modules of the current folder come first."""
    module_name, _, name = target.partition(":")
    if not module_name or not name:
        raise ConfigError(f"{target!r} is not MODULE:APP, as in shop.handlers:app")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise ConfigError(f"cannot import {module_name}: {error}") from None
    except Exception as error:
        print_exception(error.with_traceback(_without_us(error.__traceback__)))
        raise click.exceptions.Exit(FAILED) from None
    app = getattr(module, name, None)
    if not isinstance(app, App):
        raise ConfigError(f"{module_name} has no App called {name!r}: that is {app!r}")
    return app


def _without_us(frames: TracebackType | None) -> TracebackType | None:
    """Only what lies in the program itself can help whoever wrote it."""
    while frames is not None and frames.tb_frame.f_globals.get("__name__", "").startswith(_BEFORE_THE_MODULE):
        frames = frames.tb_next
    return frames


def _run_again_and_again(target: str, name_server: str | None, log_flags: list[str]) -> int:
    """Until Ctrl-C or SIGTERM, which are how one ends it."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # it ends the child, too
    command = [sys.executable, "-c", "from kourou.cli.main import main; main()"]
    command += ["run", target, *log_flags]
    if name_server:
        command += ["-n", name_server]
    files = RealFiles()
    while True:
        seen = _versions(files, os.getcwd())
        child = subprocess.Popen(command)  # noqa: S603  # this interpreter, and what the user typed
        try:
            while _versions(files, os.getcwd()) == seen:
                time.sleep(LOOK_SECONDS)
            click.echo("something has changed: starting anew")
        except KeyboardInterrupt:
            return 0
        finally:
            _end(child)


def _end(child: subprocess.Popen[bytes]) -> None:
    child.terminate()
    try:
        child.wait(STOP_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def _versions(files: RealFiles, folder: str) -> dict[str, int]:
    """Every Python file below `folder` that is not hidden, and when it was written."""
    found: dict[str, int] = {}
    for name in files.list(folder):
        path = os.path.join(folder, name)
        if name.startswith((".", "__pycache__")):
            continue
        try:
            if files.is_folder(path):
                found.update(_versions(files, path))
            elif name.endswith(".py"):
                found[path] = files.modified_ms(path)
        except OSError:  # it went while we looked
            continue
    return found
