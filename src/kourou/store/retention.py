"""Which files may go, and when the disk is too full to take more.

    used of the disk     what happens
    above 75 %           log files past their time go now, not only at the hour that is set for it
    above 85 %           the oldest log files go, whatever their age
    above 90 %           and nothing is stored until it is less again; reading goes on

The log's oldest files go first and its newest never; the consume queues and the key index follow: files that
lead nowhere any more are removed, and each queue's first offset is moved to its first message that is left.
A log file's age counts from its last write.

Age is measured by the wall clock, and a wall clock can leap: a leap forward would let everything expire at
once. So a leap is noticed beside the monotonic clock, said aloud, and believed only after a day; by then
whoever set the clock wrong has seen it. A clock that goes back is believed at once: files stay longer.

Removing a gigabyte can take a while: it is done in the background, one file after the other, each removal on
the disk before the next begins, because a log with a gap in it would be refused. At most ten a round.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial
from typing import Final

from kourou.doors.clock import Clock, Timer
from kourou.doors.files import Files
from kourou.store.commit_log import CommitLog
from kourou.store.config import ENTRY_BYTES, StoreConfig
from kourou.store.consume_queue import ConsumeQueue, ConsumeQueues
from kourou.store.flush import Background
from kourou.store.key_index import KeyIndex

FIRST_ROUND_SECONDS: Final = 60.0
SPACE_SECONDS: Final = 2.0
"""How often the disk is asked how full it is; sending resumes that soon."""
FILES_A_ROUND: Final = 10
ROUNDS_BY_HAND: Final = 20
QUEUES_A_TURN: Final = 256
LEAP_MS: Final = 60_000
LEAP_BELIEVED_SECONDS: Final = 24 * 3600.0
_HOUR_MS: Final = 3_600_000

log = logging.getLogger(__name__)


class Retention:
    def __init__(
        self,
        config: StoreConfig,
        files: Files,
        clock: Clock,
        background: Background,
        commit_log: CommitLog,
        queues: ConsumeQueues,
        index: KeyIndex,
        *,
        settled: Callable[[], int],
        refuse: Callable[[str | None], None],
    ) -> None:
        """`settled()` is how far the log is synced and its messages visible: no file beyond it may go, as its
        sync may be under way. `refuse(why)` stops the storing of messages, `refuse(None)` lets it go on."""
        self._config = config
        self._files = files
        self._clock = clock
        self._background = background
        self._log = commit_log
        self._queues = queues
        self._index = index
        self._settled = settled
        self._refuse = refuse
        self._steady = SteadyClock(clock)
        self._timers: list[Timer] = []
        self._rounds_by_hand = 0
        self._left_in_round = 0
        self._removing: list[str] = []  # files that are no longer part of the store, the oldest first
        self._is_removing = False
        self._queue_files: list[str] = []  # the same of consume queues
        self._is_removing_queue_files = False
        self._cleaning: Iterator[ConsumeQueue] | None = None
        self._cleaned_to = commit_log.start
        self._is_full = False
        self._is_stopped = False

    def start(self) -> None:
        self._timers = [
            self._clock.every(SPACE_SECONDS, self.look_at_space),
            self._clock.every(self._config.clean_interval_ms / 1000, self.round, FIRST_ROUND_SECONDS),
        ]
        self.look_at_space()

    def stop(self) -> None:
        self._is_stopped = True
        for timer in self._timers:
            timer.cancel()

    # Space.

    def look_at_space(self) -> None:
        """Refuse messages, or take them again, by how full the disks are."""
        self._steady.look()
        folder, percent = self._fullest()
        limit = self._config.disk_warning_percent
        if percent > limit:
            if not self._is_full:
                log.error(
                    "the disk of %s is %d %% used: nothing is stored above %d %%", folder, percent, limit
                )
            self._is_full = True
            self._refuse(
                f"the disk of {folder} is {percent} % used, and above {limit} % "
                "(diskSpaceWarningLevelRatio) nothing is stored; free some space, sending resumes by itself"
            )
            self._left_in_round = max(1, self._left_in_round)  # it does not wait for the next round
            self._clean_a_file()
        elif self._is_full:
            log.warning("the disk of %s is %d %% used: messages are stored again", folder, percent)
            self._is_full = False
            self._refuse(None)

    def _fullest(self) -> tuple[str, int]:
        """The folder on the fullest disk, and how many percent of that are used."""
        folders = [self._config.root]
        if self._files.is_folder(self._config.log_folder):
            folders.insert(0, self._config.log_folder)
        return max(((folder, self._percent(folder)) for folder in folders), key=lambda each: each[1])

    def _percent(self, folder: str) -> int:
        space = self._files.space(folder)
        available = space.used + space.free  # without what the system keeps for itself
        return -(-100 * space.used // available) if available else 0

    # Rounds.

    def round(self) -> None:
        """Begin to remove what may go."""
        if self._rounds_by_hand:
            self._rounds_by_hand -= 1
        self._left_in_round = FILES_A_ROUND
        self._remove_queue_files()
        self._clean_a_file()
        self._follow_the_log()

    def by_hand(self) -> None:
        """Remove what is past its time now, whatever the hour, and for some rounds more."""
        self._rounds_by_hand = ROUNDS_BY_HAND
        self.round()

    def _clean_a_file(self) -> None:
        if self._is_removing or self._is_stopped:
            return
        if not self._removing:
            oldest = self._to_remove()
            if oldest is None:
                return
            self._left_in_round -= 1
            self._removing.append(self._log.segments.forget(oldest))
            self._follow_the_log()
        self._is_removing = True
        path = self._removing[0]
        self._background(partial(self._remove, [path]), self._removed)

    def _remove(self, paths: list[str]) -> None:
        for path in paths:
            if self._files.exists(path):
                self._files.remove(path)
            self._files.sync_folder(path.rpartition("/")[0])

    def _removed(self, error: BaseException | None) -> None:
        self._is_removing = False
        if error is not None:
            log.error("%s is past its time and cannot be removed: %s; trying again", self._removing[0], error)
            return
        log.info("%s was removed", self._removing.pop(0))
        self._clean_a_file()

    def _to_remove(self) -> int | None:
        """The oldest log file, if it may go now."""
        bases = self._log.segments.bases
        if len(bases) < 2 or bases[1] > self._settled() or self._left_in_round <= 0:
            return None
        _, percent = self._fullest()
        config = self._config
        if config.clean_forcibly and percent > config.disk_clean_forcibly_percent:
            return bases[0]
        if percent > config.disk_max_used_percent or self._is_the_hour() or self._rounds_by_hand:
            segment = self._log.segments.segment_at(bases[0])
            assert segment is not None
            expires_ms = self._files.modified_ms(segment.path) + config.file_reserved_hours * _HOUR_MS
            if self._steady.now_ms() >= expires_ms:
                return bases[0]
        return None

    def _is_the_hour(self) -> bool:
        return datetime.fromtimestamp(self._clock.now_ms() / 1000).hour in self._config.delete_hours

    # What follows the log.

    def _follow_the_log(self) -> None:
        """Queues and index let go of what the log has no more; some queues at a time."""
        if self._cleaning is None and self._log.start > self._cleaned_to:
            self._cleaned_to = self._log.start
            self._index.clean(self._log.start)
            self._cleaning = iter(list(self._queues.table.values()))
            self._clean_some_queues()

    def _clean_some_queues(self) -> None:
        if self._cleaning is None or self._is_stopped:
            return
        for _ in range(QUEUES_A_TURN):
            queue = next(self._cleaning, None)
            if queue is None:
                self._cleaning = None
                self._follow_the_log()  # it may have gone on meanwhile
                return
            self._clean_queue(queue)
        self._clock.later(0.0, self._clean_some_queues)

    def _clean_queue(self, queue: ConsumeQueue) -> None:
        if queue.segments.is_empty:
            return
        gone = []
        for base in queue.segments.bases[:-1]:
            last = queue.entry((base + queue.segments.segment_bytes) // ENTRY_BYTES - 1)
            if last is None or last[0] >= self._log.start:
                break
            gone.append(queue.segments.forget(base))
        queue.correct_min(self._log.start)
        self._queue_files += gone
        self._remove_queue_files()

    def _remove_queue_files(self) -> None:
        """The oldest first: one that cannot be removed keeps those after it; a gap would be refused."""
        if self._queue_files and not self._is_removing_queue_files and not self._is_stopped:
            self._is_removing_queue_files = True
            paths = list(self._queue_files)
            self._background(partial(self._remove, paths), partial(self._queue_files_removed, paths))

    def _queue_files_removed(self, paths: list[str], error: BaseException | None) -> None:
        self._is_removing_queue_files = False
        rest = self._queue_files[len(paths) :]
        if error is None:
            self._queue_files = rest
            self._remove_queue_files()
        else:
            log.error("files of a consume queue cannot be removed: %s; trying again", error)
            self._queue_files = [path for path in paths if self._files.exists(path)] + rest


class SteadyClock:
    """A wall clock that is slow to believe in a leap forward."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset_ms = clock.now_ms() - clock.monotonic() * 1000
        self._leapt_at: float | None = None

    def now_ms(self) -> int:
        """What o'clock it is, by a clock that has not leapt within the last day."""
        self.look()
        return int(self._clock.monotonic() * 1000 + self._offset_ms)

    def look(self) -> None:
        now = self._clock.monotonic()
        ahead_ms = self._clock.now_ms() - now * 1000 - self._offset_ms
        if ahead_ms <= LEAP_MS:
            self._offset_ms += ahead_ms  # small corrections, and any way back
            self._leapt_at = None
        elif self._leapt_at is None:
            self._leapt_at = now
            log.warning(
                "the clock leapt forward by %d s; for a day, no message is taken for older because of that",
                ahead_ms // 1000,
            )
        elif now - self._leapt_at >= LEAP_BELIEVED_SECONDS:
            self._offset_ms += ahead_ms
            self._leapt_at = None
