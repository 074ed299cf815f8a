"""From what the options say to queues and offsets, by asking the cluster."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

from kourou.errors import ConfigError, NotFound, Unreachable
from kourou.protocol.names import DEAD_LETTER_PREFIX, RETRY_PREFIX, dead_letter_topic, retry_topic
from kourou.spark.cluster import Cluster
from kourou.spark.moments import Bounds
from kourou.spark.offsets import Offsets, Queue
from kourou.spark.options import EARLIEST, LATEST, Bound, QueueNumbers, SourceOptions

Result = TypeVar("Result")


def subscribed_topics(cluster: Cluster, options: SourceOptions) -> list[str]:
    """The topics to read: those named, or those there are now that match."""
    topics = list(options.topics)
    wanted = [
        (options.include_retry, RETRY_PREFIX, retry_topic),
        (options.include_dead_letters, DEAD_LETTER_PREFIX, dead_letter_topic),
    ]
    if options.pattern is not None:
        topics += cluster.topics(options.pattern, also=[prefix for asked, prefix, _ in wanted if asked])
    if options.group is not None:
        topics += [named(options.group) for asked, _, named in wanted if asked]
    return sorted(set(topics))


def subscribed_queues(cluster: Cluster, options: SourceOptions, *, fresh: bool = False) -> list[Queue]:
    """The queues to read; raises NotFound when a topic that was named is not there.

    Retry and dead-letter topics come into being with their first message, so they may be missing.
    """
    found: list[Queue] = []
    for topic in subscribed_topics(cluster, options):
        try:
            queues = cluster.queues(topic, fresh=fresh)
        except NotFound:
            if topic in options.topics:
                raise
            continue
        found += [queue for queue in queues if _is_wanted(queue, options)]
    if options.assigned is not None:
        _check_assigned(options.assigned, found)
    return sorted(found)


def _is_wanted(queue: Queue, options: SourceOptions) -> bool:
    if options.queue_ids is not None and queue.queue_id not in options.queue_ids:
        return False
    if options.assigned is None or queue.topic not in options.assigned:
        return True
    brokers = options.assigned[queue.topic]
    return queue.queue_id in brokers.get(queue.broker_name, ()) or queue.queue_id in brokers.get("", ())


def _check_assigned(assigned: Mapping[str, Mapping[str, tuple[int, ...]]], found: Collection[Queue]) -> None:
    for topic, brokers in assigned.items():
        for broker, numbers in brokers.items():
            there = {
                queue.queue_id
                for queue in found
                if queue.topic == topic and (not broker or queue.broker_name == broker)
            }
            if missing := sorted(set(numbers) - there):
                at = f" at {broker}" if broker else ""
                raise ConfigError(
                    f"option assign names queue {missing[0]} of '{topic}'{at}, which is not there; "
                    f"it has: {', '.join(map(str, sorted(there))) or 'none'}"
                )


def patiently(options: SourceOptions, ask: Callable[[], Result]) -> Result:
    """What `ask` gives; a broker that is away just now is asked again a few times."""
    for _ in range(options.lookup_tries - 1):
        try:
            return ask()
        except Unreachable:
            threading.Event().wait(options.lookup_pause_ms / 1000)
    return ask()


# ------------------------------------------------------------------------------------- where it begins, ends


def resolved(
    cluster: Cluster,
    queues: Collection[Queue],
    bound: Bound,
    options: SourceOptions,
    *,
    otherwise: int,
    option: str,
) -> Offsets:
    """The offsets a bound stands for now.

    `otherwise` (EARLIEST or LATEST) is for queues that nothing is said about: those a JSON does not name, or
    where the group has never been. Whether there is a message at an offset that was said is not looked at.
    """
    bounds = cluster.bounds(queues)
    if bound.timestamp_ms is not None:
        return _by_time(cluster, dict.fromkeys(queues, bound.timestamp_ms), bounds, options)
    if bound.timestamps_ms is not None:
        moments = _of_queues(bound.timestamps_ms, queues, f"{option}ByTimestamp")
        rest = {queue: _place(otherwise, bounds[queue]) for queue in queues}
        return {**rest, **_by_time(cluster, moments, bounds, options)}
    if bound.offsets is not None:
        numbers = _of_queues(bound.offsets, queues, option)
        return {queue: _place(numbers.get(queue, otherwise), bounds[queue]) for queue in queues}
    if bound.where == "group":
        assert options.group is not None
        places = cluster.committed(queues, options.group)
        return {queue: _place(places.get(queue, otherwise), bounds[queue]) for queue in queues}
    where = EARLIEST if bound.where == "earliest" else LATEST
    return {queue: _place(where, bounds[queue]) for queue in queues}


def _place(offset: int, bounds: Bounds) -> int:
    if offset == EARLIEST:
        return bounds.low
    return bounds.high if offset == LATEST else offset


def _by_time(
    cluster: Cluster, moments: Mapping[Queue, int], bounds: Mapping[Queue, Bounds], options: SourceOptions
) -> Offsets:
    found = cluster.at_times(moments, options.group or options.group_prefix)
    if options.after_last_message == "error":
        for queue in sorted(found):
            if found[queue] >= bounds[queue].high:
                raise ConfigError(
                    f"{queue} has no message stored at {moments[queue]} ms or later; with the option "
                    "startingOffsetsByTimestampStrategy=latest it is read from its end"
                )
    return found


def _of_queues(numbers: QueueNumbers, queues: Collection[Queue], option: str) -> dict[Queue, int]:
    """A JSON of options as a table; what it names must be read at all."""
    named = {
        Queue(topic, broker, queue_id): number
        for topic, brokers in numbers.items()
        for broker, by_queue in brokers.items()
        for queue_id, number in by_queue.items()
    }
    there = set(queues)
    for queue in sorted(named):
        if queue not in there:
            shown = ", ".join(str(each) for each in sorted(there)[:4])
            raise ConfigError(f"option {option} names {queue}, which is not read here; that is: {shown} …")
    return named
