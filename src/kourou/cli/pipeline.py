"""`kourou pipeline …`: ready-made jobs on Spark. Parses, starts a session, prints the report; decides
nothing.

Exit codes: 0 done, and nothing wrong was found; 6 an audit, a scan or a verification found something.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kourou.cli.changing import RATE, SOME_TIME
from kourou.cli.connection import name_server_option
from kourou.cli.output import as_json, as_text, format_option, show
from kourou.errors import MissingExtra
from kourou.protocol.names import TRACE_TOPIC

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kourou.spark.pipelines.reach import Reach
    from kourou.spark.pipelines.report import Report

CHECK_FAILED = 6
WATCH_SECONDS = 0.3

Command = TypeVar("Command", bound=Callable[..., Any])
Progress = Callable[[int, int], None]


@click.group()
def pipeline() -> None:
    """Archive, restore, redrive, measure and audit, on Spark."""


def spark_options(command: Command) -> Command:
    """What every pipeline has: where Spark runs, what else it is told, where the report goes."""
    for option in (
        click.option(
            "--master", metavar="URL", help="Where Spark runs: local[*], spark://host:7077, yarn, k8s://…"
        ),
        click.option("--remote", metavar="URL", help="A Spark Connect server instead, like sc://host:15002."),
        click.option(
            "--conf",
            "settings",
            metavar="NAME=VALUE",
            multiple=True,
            help="A setting of Spark's own. Repeatable.",
        ),
        click.option("--report", "page", metavar="FILE", type=click.Path(), help="Also write an HTML page."),
        format_option,
    ):
        command = option(command)
    return command


def picture_option(command: Command) -> Command:
    return click.option(
        "--picture", "png", metavar="FILE", type=click.Path(), help="Also draw it, as a PNG file."
    )(command)


def reach_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Where the cluster is and how to reach it: `-n` and `--option`, handed over together as `reach`."""

    @click.option(
        "--option",
        "options",
        metavar="NAME=VALUE",
        multiple=True,
        help="An option of format('rocketmq'), like credentialsFile=… or tags=… Repeatable.",
    )
    @name_server_option
    @wraps(command)
    def reaching(*, options: tuple[str, ...], name_server: str, **given: Any) -> Any:
        from kourou.spark.pipelines.reach import Reach

        return command(reach=Reach(name_server, _pairs("--option", options)), **given)

    return reaching


def dry_run_option(command: Command) -> Command:
    return click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")(command)


def measuring_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """What those have that measure a cluster, and draw what they found."""
    return picture_option(reach_options(dry_run_option(spark_options(command))))


def groups_option(command: Command) -> Command:
    return click.option(
        "--group", "groups", metavar="GROUP", multiple=True, help="Only these groups. Repeatable."
    )(command)


def since_option(command: Command) -> Command:
    return click.option(
        "--since", metavar="TIME", help="Nothing older: milliseconds, or like 2026-01-31T12:00:00Z."
    )(command)


def every_option(seconds: float, what: str) -> Callable[[Command], Command]:
    return click.option(
        "--every", type=SOME_TIME, default=seconds, show_default=True, metavar="SECONDS", help=what
    )


# ------------------------------------------------------------------------------------------- the pipelines


@pipeline.command()
@click.argument("topics", nargs=-1)
@click.option("--lake", required=True, metavar="DIR", type=click.Path(), help="The folder to archive to.")
@click.option("--pattern", metavar="REGEX", help="All topics whose whole name matches, new ones too.")
@click.option(
    "--format",
    "table_format",
    type=click.Choice(["manifest", "delta", "iceberg"]),
    default="manifest",
    show_default=True,
    help="The table format over the Parquet files.",
)
@click.option("--continuous", is_flag=True, help="Go on until Ctrl-C.")
@every_option(10.0, "With --continuous: a batch so often.")
@dry_run_option
@picture_option
@reach_options
@spark_options
def archive(
    topics: tuple[str, ...],
    lake: str,
    pattern: str | None,
    table_format: str,
    continuous: bool,
    every: float,
    dry_run: bool,
    reach: Reach,
    **spark: Any,
) -> int:
    """Add what is new in TOPICS to a lake of Parquet files. Each message exactly once.

    Runs again where the last run ended, however that was. The lake is partitioned by topic and day.
    """
    from kourou.spark.pipelines.archive import archive

    with (
        _session("archive", watched=False, **spark) as session,
        _progress() as progress,
        _stopped_by_signals() as stop,
    ):
        done = archive(
            session,
            reach,
            lake,
            topics=topics,
            pattern=pattern,
            table_format=table_format,
            continuous=continuous,
            every=every,
            stop=stop,
            dry_run=dry_run,
            progress=progress,
        )
    done.with_picture = _draws(**spark)
    return _told(done.report(), **spark)


@pipeline.command()
@click.argument("topics", nargs=-1)
@click.option("--lake", required=True, metavar="DIR", type=click.Path(), help="The folder to restore from.")
@click.option(
    "--rename", metavar="TOPIC=NEW", multiple=True, help="Put a topic under another name. Repeatable."
)
@click.option("--again", is_flag=True, help="Add it once more to where it was restored before.")
@dry_run_option
@reach_options
@spark_options
def restore(
    topics: tuple[str, ...],
    lake: str,
    rename: tuple[str, ...],
    again: bool,
    dry_run: bool,
    reach: Reach,
    **spark: Any,
) -> int:
    """Put TOPICS of a lake back, and verify them by digest. All of them, when none is named.

    Queue, order, keys, tags, properties and born time are kept. Nobody else may write to the topics
    meanwhile.
    """
    from kourou.spark.pipelines.restore import restore

    with _session("restore", **spark) as session:
        done = restore(
            session,
            lake,
            reach,
            topics=topics or None,
            rename=_pairs("--rename", rename),
            again=again,
            dry_run=dry_run,
        )
    return _told(done.report(), **spark)


@pipeline.command()
@click.argument("group")
@click.option(
    "--audit", required=True, metavar="DIR", type=click.Path(), help="The folder of the audit table."
)
@click.option(
    "--where",
    default="true",
    show_default=True,
    metavar="SQL",
    help="Which dead letters, like \"tags = 'late' and storeTimestamp > '2026-01-31'\".",
)
@click.option("--into", metavar="TOPIC", help="Send them here, and not to the topics they came from.")
@click.option("--rate", type=RATE, default=1000.0, show_default=True, help="Messages a second.")
@click.option("--limit", type=click.IntRange(1), help="No more than so many.")
@dry_run_option
@reach_options
@spark_options
def redrive(
    group: str,
    audit: str,
    where: str,
    into: str | None,
    rate: float,
    limit: int | None,
    dry_run: bool,
    reach: Reach,
    **spark: Any,
) -> int:
    """Send dead letters of GROUP back where they came from. Never the same one twice."""
    from kourou.spark.pipelines.redrive import redrive

    with _session("redrive", **spark) as session:
        done = redrive(
            session,
            reach,
            group,
            audit,
            where=where,
            into=into,
            rate=rate,
            limit=limit,
            dry_run=dry_run,
        )
    return _told(done.report(), **spark)


@pipeline.command()
@click.argument("topics", nargs=-1)
@groups_option
@since_option
@measuring_options
def latency(
    topics: tuple[str, ...],
    groups: tuple[str, ...],
    since: str | None,
    reach: Reach,
    dry_run: bool,
    **spark: Any,
) -> int:
    """Percentiles of how long messages take. From the message trace and the timestamps of TOPICS."""
    from kourou.spark.pipelines import outlook
    from kourou.spark.pipelines.latency import latency

    if dry_run:
        return _told(outlook.of_topics("latency", reach, topics or (TRACE_TOPIC,)), **spark)
    with _session("latency", **spark) as session:
        found = latency(
            session,
            reach,
            topics=topics,
            groups=groups or None,
            starting_timestamp=since,
        )
    return _told(found.report(with_pictures=_draws(**spark)), **spark)


@pipeline.command("lag-history")
@click.option(
    "--history", required=True, metavar="DIR", type=click.Path(), help="The folder to keep samples in."
)
@groups_option
@click.option("--samples", type=click.IntRange(1), default=1, show_default=True, help="How often to look.")
@every_option(10.0, "How long to wait between two looks.")
@measuring_options
def lag_history(
    history: str,
    groups: tuple[str, ...],
    samples: int,
    every: float,
    reach: Reach,
    dry_run: bool,
    **spark: Any,
) -> int:
    """How far groups are behind, over time. In messages and in seconds; every run adds to the history."""
    from kourou.spark.pipelines import outlook
    from kourou.spark.pipelines.lag_history import lag_history

    if dry_run:
        return _told(outlook.of_groups("lag-history", reach, groups or None, samples, every), **spark)
    with (
        _session("lag-history", watched=False, **spark) as session,
        _progress() as progress,
        _stopped_by_signals() as stop,
    ):
        found = lag_history(
            session,
            reach,
            history,
            groups=groups or None,
            samples=samples,
            every=every,
            stop=stop,
            progress=progress,
        )
    return _told(found.report(with_pictures=_draws(**spark)), **spark)


@pipeline.command()
@click.argument("topics", nargs=-1)
@click.option("--lake", metavar="DIR", type=click.Path(), help="A lake, held against its brokers.")
@click.option("--offline", is_flag=True, help="With --lake: only against its own commits.")
@click.option(
    "--filtered", is_flag=True, help="With --lake: it was archived with a filter, so gaps are fine."
)
@click.option("--trace", is_flag=True, help="What was sent against what was handled, by the message trace.")
@click.option(
    "--group", "groups", metavar="GROUP", multiple=True, help="With --trace: only these. Repeatable."
)
@click.option("--since", metavar="TIME", help="With --trace: nothing older.")
@reach_options
@dry_run_option
@spark_options
def audit(
    topics: tuple[str, ...],
    lake: str | None,
    offline: bool,
    filtered: bool,
    trace: bool,
    groups: tuple[str, ...],
    since: str | None,
    reach: Reach,
    dry_run: bool,
    **spark: Any,
) -> int:
    """See whether all of TOPICS (or of all) is there, once, in order. Exit code 6 when it is not."""
    from kourou.spark.pipelines import outlook
    from kourou.spark.pipelines.audit import audit_lake, audit_sides

    if trace == (lake is not None):
        raise click.UsageError("say what to audit: --lake DIR, or --trace")
    if dry_run:
        looked_at = (
            outlook.of_lake("audit", lake)
            if lake is not None
            else outlook.of_topics("audit", reach, (TRACE_TOPIC,))
        )
        return _told(looked_at, **spark)
    with _session("audit", **spark) as session:
        if lake is not None:
            report = audit_lake(
                session, lake, None if offline else reach, topics=topics or None, is_filtered=filtered
            ).report()
        else:
            report = audit_sides(
                session, reach, topics=topics or None, groups=groups or None, starting_timestamp=since
            ).report()
    return _told(report, **spark)


@pipeline.command()
@click.argument("topics", nargs=-1, required=True)
@click.option("--window", default="1 minute", show_default=True, help="How long one window of time is.")
@since_option
@click.option("--stream", metavar="DIR", type=click.Path(), help="Go on until Ctrl-C; DIR keeps the counts.")
@every_option(5.0, "With --stream: count so often.")
@measuring_options
def stats(
    topics: tuple[str, ...],
    window: str,
    since: str | None,
    stream: str | None,
    every: float,
    reach: Reach,
    dry_run: bool,
    **spark: Any,
) -> int:
    """Volume, sizes, keys, tags and hot queues of TOPICS, over time."""
    from kourou.spark.pipelines import outlook
    from kourou.spark.pipelines.stats import Window, stats, stream_stats

    def told(windows: list[Window]) -> None:
        show([vars(each) for each in windows], ("topic", "start_ms", "messages", "bytes"), spark["output"])

    if dry_run:
        return _told(outlook.of_topics("stats", reach, topics), **spark)
    with _session("stats", **spark) as session:
        if stream is None:
            found = stats(session, reach, topics=topics, window=window, starting_timestamp=since)
        else:
            with _stopped_by_signals() as stop:
                found = stream_stats(
                    session,
                    reach,
                    stream,
                    topics=topics,
                    window=window,
                    every=every,
                    stop=stop,
                    told=told,  # type: ignore[arg-type]
                )
    return _told(found.report(with_pictures=_draws(**spark)), **spark)


@pipeline.command("scan-store")
@click.argument("folder", metavar="DIR", type=click.Path())
@click.option(
    "--recover", metavar="DIR", type=click.Path(), help="Write every readable message here, as Parquet."
)
@picture_option
@dry_run_option
@spark_options
def scan_store(folder: str, recover: str | None, dry_run: bool, **spark: Any) -> int:
    """Look for damage in the store DIR of a stopped broker. What is unreadable, unindexed or has a bad CRC.

    Exit code 6 when there is one. Nothing in DIR is changed.
    """
    from kourou.spark.pipelines import outlook
    from kourou.spark.pipelines.scan_store import scan_store

    if dry_run:
        return _told(outlook.of_store("scan-store", folder), **spark)
    with _session("scan-store", **spark) as session:
        found = scan_store(session, folder, recover=recover)
    return _told(found.report(with_pictures=_draws(**spark)), **spark)


# ------------------------------------------------------------------------------------------ around them


@contextmanager
def _session(
    name: str,
    master: str | None,
    remote: str | None,
    settings: tuple[str, ...],
    *,
    watched: bool = True,
    **_: Any,
) -> Iterator[SparkSession]:
    """A session; with `watched` and where somebody looks, a bar of the tasks that are done."""
    if master is not None and remote is not None:
        raise click.UsageError("--master and --remote both say where Spark runs; give one of them")
    chosen = _pairs("--conf", settings)
    try:
        import pyspark  # noqa: F401
    except ImportError:
        raise MissingExtra("pipelines need an extra: pip install 'kourou[spark]'") from None
    from kourou.spark.pipelines.quiet import quiet_session

    with quiet_session(f"kourou {name}", master=master, remote=remote, settings=chosen) as spark:
        if not watched or remote is not None or not sys.stderr.isatty():
            yield spark
            return
        with _progress("tasks") as progress, _watching(spark, progress):
            yield spark


@contextmanager
def _watching(spark: SparkSession, progress: Progress) -> Iterator[None]:
    """Tells, a few times a second, how many tasks of the stages under way are done."""
    tracker = spark.sparkContext.statusTracker()
    over = threading.Event()

    def watch() -> None:
        while not over.wait(WATCH_SECONDS):
            stages = [tracker.getStageInfo(each) for each in tracker.getActiveStageIds()]
            known = [stage for stage in stages if stage is not None]
            progress(sum(each.numCompletedTasks for each in known), sum(each.numTasks for each in known))

    watcher = threading.Thread(target=watch, name="kourou-watch", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


def _pairs(option: str, given: tuple[str, ...]) -> dict[str, str]:
    pairs = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not name or not equals:
            raise click.UsageError(f"{option} {each!r} must look like NAME=VALUE")
        pairs[name] = value
    return pairs


@contextmanager
def _progress(what: str = "messages") -> Iterator[Progress]:
    """A bar on stderr where somebody looks; elsewhere nothing."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=max(done, total))


@contextmanager
def _stopped_by_signals() -> Iterator[threading.Event]:
    """Set by Ctrl-C or SIGTERM: a continuous pipeline then ends at a good place."""
    stop = threading.Event()
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in numbers}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _draws(page: str | None, png: str | None = None, **_: Any) -> bool:
    """Whether anybody will see a picture."""
    return bool(png or page)


def _told(report: Report, output: str, page: str | None, png: str | None = None, **_: Any) -> int:
    """Print the report, write its page and picture; returns the exit code."""
    _show(report, output)
    _write(report, page, png)
    return 0 if report.is_ok else CHECK_FAILED


def _show(report: Report, output: str) -> None:
    from kourou.spark.pipelines.report import shown, spoken

    if output in ("json", "jsonl"):
        click.echo(as_json(report.as_data(), indent=2 if output == "json" else None))
        return
    click.echo(f"{report.title}{' (dry run: nothing was done)' if report.is_dry_run else ''}")
    width = max(map(len, report.facts), default=0)
    for name, value in report.facts.items():
        if value is not None:
            click.echo(f"  {spoken(name):<{width}}  {as_text(shown(value))}")
    for table in report.tables:
        if table.rows:
            click.echo(f"\n{spoken(table.title)}")
            cells = [{column: shown(row.get(column)) for column in table.columns} for row in table.rows]
            show(cells, table.columns, output)
    for remark in report.remarks:
        click.echo(f"\n{as_text(remark)}")
    if not report.is_ok:
        click.echo("\nNot everything is as it should be.")


def _write(report: Report, page: str | None, png: str | None) -> None:
    from kourou.doors.files import RealFiles
    from kourou.spark.pipelines.report import as_html

    if page is not None:
        RealFiles().write_atomically(page, as_html(report).encode(), keep_previous=False)
        click.echo(f"wrote {as_text(page)}", err=True)
    if png is not None:
        if not report.pictures:
            click.echo("there is nothing to draw", err=True)
            return
        for number, picture in enumerate(report.pictures):
            path = png if number == 0 else _numbered(png, number + 1)
            RealFiles().write_atomically(path, picture.png, keep_previous=False)
            click.echo(f"wrote {as_text(path)}", err=True)


def _numbered(path: str, number: int) -> str:
    """`lag.png` becomes `lag-2.png`."""
    stem, dot, ending = path.rpartition(".")
    return f"{stem}-{number}.{ending}" if dot else f"{path}-{number}"
