"""What a pipeline that only looks would look at: the dry runs of `latency`, `stats`, `audit` and the others.

No Spark is started for it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import closing

from kourou.admin import groups as admin_groups
from kourou.admin import topics as admin_topics
from kourou.doors.files import RealFiles
from kourou.spark.pipelines.lake import Lake
from kourou.spark.pipelines.reach import Reach
from kourou.spark.pipelines.report import Report, Rows


def of_topics(title: str, reach: Reach, topics: Sequence[str]) -> Report:
    """How many messages there are to read. Raises NotFound for a topic that is not there."""
    with reach.connection() as connection:
        found = {topic: admin_topics.stats(connection, topic) for topic in topics}
    rows = [
        {"topic": topic, "queues": len(stats.queues), "messages": stats.messages}
        for topic, stats in sorted(found.items())
    ]
    facts = {"topics": len(rows), "messages": sum(stats.messages for stats in found.values())}
    return _report(title, facts, Rows("topics", ("topic", "queues", "messages"), rows))


def of_groups(title: str, reach: Reach, groups: Sequence[str] | None, samples: int, every: float) -> Report:
    with reach.connection() as connection:
        names = sorted(groups if groups is not None else admin_groups.names(connection))
    facts = {"groups": len(names), "samples": samples, "seconds": (samples - 1) * every}
    return _report(title, facts, Rows("groups", ("group",), [{"group": name} for name in names]))


def of_lake(title: str, lake: str) -> Report:
    source = Lake(lake)
    source.format()
    files = source.files()
    rows = [
        {"topic": queue.topic, "broker": queue.broker_name, "queue": queue.queue_id, "read_to": position.end}
        for queue, position in source.positions().items()
    ]
    facts = {"lake": source.folder, "files": len(files), "messages": sum(file.rows for file in files)}
    return _report(title, facts, Rows("queues", ("topic", "broker", "queue", "read_to"), rows))


def of_store(title: str, folder: str) -> Report:
    """Raises ConfigError when it is no store."""
    from kourou.spark.store_scan import log_folder

    files = RealFiles()
    log = log_folder(files, os.path.abspath(folder))
    sizes = {}
    for name in files.list(log):
        with closing(files.open(os.path.join(log, name), read_only=True)) as file:
            sizes[name] = file.size()
    rows = [{"file": name, "bytes": size} for name, size in sizes.items()]
    facts = {"folder": log, "files": len(sizes), "bytes": sum(sizes.values())}
    return _report(title, facts, Rows("files", ("file", "bytes"), rows))


def _report(title: str, facts: Mapping[str, object], rows: Rows) -> Report:
    return Report(title=title, facts=facts, tables=[rows], is_dry_run=True)
