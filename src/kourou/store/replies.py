"""The usual pull, answered with one copy: from the log straight into the frame that goes out.

    entries of the queue ─▶ which of them? ─▶ a view of the log ─▶ head | record | record | ... | record

`Reader` finds the same records in the plain way, and knows of all that is unusual: nothing found, messages
far behind or over two files, damage, entries that stand for no message of their own. Whatever is so in any
way is left to it: then there is no reply here. It takes `kourou.native`; without it there is none at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from kourou.native import native
from kourou.store import ahead
from kourou.store.ahead import Accepts, TagCodes
from kourou.store.commit_log import CommitLog
from kourou.store.consume_queue import ConsumeQueue
from kourou.store.reading import Reader

Reply = tuple[tuple[bytes | memoryview, ...], int, int, int, int]
"""The parts of a frame, and their bytes; where to read on; how many messages, and how many bytes of them."""

_pull_reply: Final = None if native is None else native.pull_reply
_kept_reply: Final = None if native is None else native.kept_reply


class Replies:
    def __init__(
        self, reader: Reader, log: CommitLog, queues: Mapping[tuple[str, int], ConsumeQueue]
    ) -> None:
        self._reader = reader
        self._log = log
        self._queues = queues

    def reply(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        count_max: int,
        wanted: TagCodes,
        accepts: Accepts | None,
        template: bytes,
        opaque: int,
    ) -> Reply | None:
        """What `Reader.read` would find, as a whole frame: 10 us for 32 messages, where looking them up,
        joining them twice and making a head take 35; bench: pull.

        Its header is `template`, with a %d for the number of the broker to ask the next time, which is the
        master, for the offset to read on, the least and the greatest one of the queue, and for the number of
        the request.
        """
        queue, reader = self._queues.get((topic, queue_id)), self._reader
        if queue is None or _pull_reply is None or (wanted is not None and reader.tags_may_be_elsewhere):
            return None
        if accepts is None and _kept_reply is not None:
            found: Reply | None = _kept_reply(
                queue,
                reader.config,
                reader.ahead.kept_entries,
                ahead.ENTRIES_TOGETHER,
                ahead.FILTERED_BLOCK_ENTRIES,
                queue_offset,
                count_max,
                wanted,
                template,
                opaque,
                self._log.end - reader.in_memory_bytes,
                self._log.view,
            )
            if found is not None:
                return found
        return self._looked_up(queue, queue_offset, count_max, wanted, accepts, template, opaque)

    def _looked_up(
        self,
        queue: ConsumeQueue,
        queue_offset: int,
        count_max: int,
        wanted: TagCodes,
        accepts: Accepts | None,
        template: bytes,
        opaque: int,
    ) -> Reply | None:
        """As `reply`, with entries that are still to be read, or looked at, or asked about."""
        reader, log = self._reader, self._log
        config = reader.config
        least, most = queue.min_offset, queue.max_offset
        if not least <= queue_offset < most:
            return None
        if count_max > config.pull_messages_in_memory_max:
            count_max = config.pull_messages_in_memory_max
        elif count_max < 1:
            count_max = 1
        scan_max, verdicts = count_max, None
        if wanted is not None or accepts is not None:
            scan_max = max(config.scan_entries_max, count_max)
        if queue_offset < queue.old_end and reader.mender.look(queue, queue_offset, scan_max) != queue_offset:
            return None
        if accepts is not None:
            verdicts = self._verdicts(queue, queue_offset, count_max, scan_max, accepts)
            if verdicts is None or wanted is not None:
                return None
        assert _pull_reply is not None
        entries, first = reader.ahead.entries(queue, queue_offset, count_max + 1)
        for _ in range(2):
            found: Reply | Literal[False] | None = _pull_reply(
                template,
                0,
                least,
                most,
                opaque,
                entries,
                first,
                verdicts,
                queue_offset,
                count_max,
                config.pull_bytes_in_memory_max,
                scan_max,
                ahead.FILTERED_BLOCK_ENTRIES,
                wanted,
                log.end - reader.in_memory_bytes,
                log.view,
            )
            if found is not False:
                return found
            entries, first = queue.entries(queue_offset, scan_max + 1), 0  # more than were kept side by side
        return None

    def _verdicts(
        self, queue: ConsumeQueue, queue_offset: int, count_max: int, scan_max: int, accepts: Accepts
    ) -> bytes | None:
        """What is accepted from `queue_offset` on, until it is enough; None when that cannot be seen so."""
        number, within = divmod(queue_offset, ahead.FILTERED_BLOCK_ENTRIES)
        scan_max = min(scan_max, queue.max_offset - queue_offset)
        verdicts = b""
        while len(verdicts) - within < scan_max and verdicts.count(1, within) < count_max:
            more = self._reader.ahead.verdicts(queue, number, accepts)
            if not more:
                return None
            verdicts += more
            number += 1
        return verdicts[within:]
