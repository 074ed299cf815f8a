"""`kourou store …`: look at a stopped broker's data folder, show what is in it, put it right."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import islice
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kourou.cli.exit_codes import CHECK_FAILED
from kourou.cli.output import Row, as_json, as_text, format_option, show
from kourou.errors import MQError

if TYPE_CHECKING:
    from kourou.protocol.record import Record
    from kourou.store.check import Progress
    from kourou.store.config import StoreConfig
    from kourou.store.findings import Report

FINDING_COLUMNS = ("severity", "file", "offset", "what", "meaning", "repair")
RECORD_COLUMNS = (
    "place",
    "topic",
    "queue_id",
    "queue_offset",
    "stored_at",
    "message_id",
    "tags",
    "keys",
    "body",
)
BODY_CHARACTERS_MAX = 60

Command = TypeVar("Command", bound=Callable[..., Any])


@click.group()
def store() -> None:
    """Look at a stopped broker's data folder, show what is in it, put it right."""


def _folder_and_config(command: Command) -> Command:
    """DIR and `-c`, handed over as `folder` and `path`."""
    config = click.option(
        "-c",
        "--config",
        "path",
        type=click.Path(),
        help="The broker's configuration, where sizes are unusual or the log lies elsewhere.",
    )
    return click.argument("folder", metavar="DIR", type=click.Path())(config(command))


@store.command()
@_folder_and_config
@format_option
def check(folder: str, path: str | None, output: str) -> int:
    """Verify every record, queue entry, index entry and small file in DIR. Changes nothing."""
    from kourou.doors.files import RealFiles
    from kourou.store.check import alone, check

    files, config = RealFiles(), _config(folder, path)
    started = perf_counter()
    with alone(files, config.root), _progress() as progress:
        report = check(config, files, progress, is_told=path is not None)
    _show_report(report, output, perf_counter() - started)
    return 0 if report.is_clean else CHECK_FAILED


@store.command()
@_folder_and_config
@click.option("--from", "start", type=click.IntRange(0), default=0, help="Begin at this place of the log.")
@click.option("--to", "end", type=click.IntRange(0), help="End before this place of the log.")
@click.option("--topic", help="Only messages of this topic.")
@click.option(
    "--queue", "queue_id", type=click.IntRange(0), help="Only messages of the queue of this number."
)
@click.option("--key", help="Only messages with this key, or this unique id.")
@click.option("--count", type=click.IntRange(1), help="Stop after that many messages.")
@click.option(
    "--body",
    type=click.Choice(["text", "hex", "none"]),
    default="text",
    show_default=True,
    help="How to show bodies.",
)
@format_option
def dump(
    folder: str,
    path: str | None,
    start: int,
    end: int | None,
    topic: str | None,
    queue_id: int | None,
    key: str | None,
    count: int | None,
    body: str,
    output: str,
) -> None:
    """Print the records of DIR in the order of the log."""
    from kourou.doors.files import RealFiles
    from kourou.store.check import alone
    from kourou.store.dump import Wanted, dump

    files, config = RealFiles(), _config(folder, path)
    wanted = Wanted(start=start, end=end, topic=topic, queue_id=queue_id, key=key)
    with alone(files, config.root):
        rows = (
            _row(record, body, output)
            for record in islice(dump(config, files, wanted, is_told=path is not None), count)
        )
        columns = RECORD_COLUMNS if body != "none" else RECORD_COLUMNS[:-1]
        show(rows, columns, output)


@store.command()
@_folder_and_config
@click.option("--yes", is_flag=True, help="Do it. Without this nothing is changed.")
@format_option
def repair(folder: str, path: str | None, yes: bool, output: str) -> int:
    """Say what would put DIR right; with --yes, do it. What is replaced is kept in DIR/quarantine."""
    from kourou.doors.clock import RealClock
    from kourou.doors.files import RealFiles
    from kourou.store.check import alone, check
    from kourou.store.repair import repair

    files, config = RealFiles(), _config(folder, path)
    started = perf_counter()
    with alone(files, config.root, to_change=yes):
        with _progress() as progress:
            report = check(config, files, progress, is_told=path is not None)
        if not yes or not report.actions:
            _show_report(report, output, perf_counter() - started)
            if report.actions:
                click.echo(f"Nothing was changed. To do it: kourou store repair {folder} --yes", err=True)
            return 0 if report.is_clean else CHECK_FAILED
        aside = repair(
            config,
            report,
            files,
            RealClock(),
            lambda done: click.echo(as_text(done), err=True),
            is_told=path is not None,
        )
        click.echo(f"What was replaced is in {as_text(aside)}", err=True)
        with _progress() as progress:
            report = check(config, files, progress, is_told=path is not None)
    _show_report(report, output, perf_counter() - started)
    return 0 if report.is_clean else CHECK_FAILED


def _config(folder: str, path: str | None) -> StoreConfig:
    """What a broker would think of the folder: with its configuration file, or with the usual sizes."""
    from dataclasses import replace

    from kourou.broker.config import KEYS, BrokerConfig
    from kourou.cli.configuration import configured

    root = folder.rstrip("/") or "/"
    if path is None:
        from kourou.store.config import StoreConfig

        return StoreConfig(root=root)
    return replace(configured(BrokerConfig, KEYS, path, {"store_path": root}, {}).store(), root=root)


@contextmanager
def _progress() -> Iterator[Progress]:
    """A bar on stderr where somebody looks; elsewhere nothing."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

    with Progress(
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    ) as bar:
        task = bar.add_task("", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _show_report(report: Report, output: str, seconds: float) -> None:
    findings: list[Row] = [
        {
            "severity": finding.severity,
            "file": finding.file,
            "offset": finding.offset,
            "what": finding.what,
            "meaning": finding.meaning,
            "repair": finding.repair,
        }
        for finding in report.findings
    ]
    if output == "jsonl":
        show(findings, FINDING_COLUMNS, output)
        return
    if output == "json":
        whole = {
            "folder": report.folder,
            "is_clean": report.is_clean,
            "is_closed": report.is_closed,
            "seconds": round(seconds, 3),
            "counts": report.counts(),
            "findings": findings,
        }
        click.echo(as_json(whole, indent=2))
        return
    rate = report.log_bytes / max(seconds, 1e-9) / 1e6
    click.echo(f"{as_text(report.folder)}: looked at in {seconds:.1f} s, {rate:.0f} MB/s")
    show(
        [{"looked_at": what, "number": number} for what, number in _spoken(report)],
        ("looked_at", "number"),
        output,
    )
    if findings:
        click.echo()
        show(findings, FINDING_COLUMNS, output)
    click.echo()
    errors = len(report.errors)
    click.echo(
        "Nothing is wrong." if not errors else f"{errors} thing{'s are' if errors > 1 else ' is'} wrong."
    )


def _spoken(report: Report) -> Iterator[tuple[str, int]]:
    for name, number in report.counts().items():
        yield name.replace("_", " "), number


def _row(record: Record, body: str, output: str) -> Row:
    table = record.property_table()
    row: dict[str, object] = {
        "place": record.physical_offset,
        "size": record.size,
        "topic": record.topic.decode("utf-8", "backslashreplace"),
        "queue_id": record.queue_id,
        "queue_offset": record.queue_offset,
        "stored_at": _moment(record.store_ms),
        "born_at": _moment(record.born_ms),
        "born_host": "{}:{}".format(*record.born_at()),
        "store_host": "{}:{}".format(*record.stored_at()),
        "message_id": table.get("UNIQ_KEY") or record.offset_id(),
        "offset_id": record.offset_id(),
        "sys_flag": record.sys_flag,
        "flag": record.flag,
        "reconsume_times": record.reconsume_times,
        "tags": table.get("TAGS"),
        "keys": table.get("KEYS"),
        "properties": table,
    }
    if body != "none":
        row["body"] = _body(record, body, BODY_CHARACTERS_MAX if output == "table" else None)
    return row


def _body(record: Record, form: str, most: int | None) -> str:
    try:
        content = record.plain_body()
    except MQError as error:  # one body that cannot be inflated must not end it
        return f"<unreadable body: {error}>"
    text = content.hex() if form == "hex" else content.decode(errors="backslashreplace")
    return text if most is None or len(text) <= most else text[: most - 1] + "…"


def _moment(moment_ms: int) -> str:
    try:
        return datetime.fromtimestamp(moment_ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):  # a record may say anything
        return str(moment_ms)
