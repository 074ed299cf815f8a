from __future__ import annotations

from kourou.remoting.config import ServerConfig
from kourou.remoting.watch import PROGRESS_BYTES, Watch


class Seen:
    """A connection as the watch sees it."""

    reads = writes = frames = bytes_out = partial_bytes = write_buffer_bytes = 0
    is_held_back = False


CONFIG = ServerConfig()


def looks(seen: Seen, watch: Watch, start: int, stop: int) -> str | None:
    """A look each second; the first reason, and when."""
    for now in range(start, stop):
        reason = watch.overdue(seen, float(now), CONFIG)
        if reason is not None:
            return f"{reason} at {now}"
    return None


def test_the_first_frame_has_ten_seconds() -> None:
    assert looks(Seen(), Watch(0.0), 1, 60) == "first frame at 10"


def test_a_frame_has_thirty_seconds_from_when_it_was_first_seen() -> None:
    seen, watch = Seen(), Watch(0.0)
    seen.frames = 1
    assert looks(seen, watch, 0, 50) is None
    seen.partial_bytes = 1
    seen.reads = 1
    assert looks(seen, watch, 50, 100) == "frame at 80"


def test_time_in_which_we_do_not_read_is_not_counted_against_the_peer() -> None:
    seen, watch = Seen(), Watch(0.0)
    seen.partial_bytes = 1
    seen.is_held_back = True
    assert looks(seen, watch, 0, 100) is None
    seen.is_held_back = False
    assert looks(seen, watch, 100, 200) == "first frame at 109"


def test_idle_counts_from_the_last_read_or_write() -> None:
    seen, watch = Seen(), Watch(0.0)
    seen.frames = seen.reads = 1
    assert looks(seen, watch, 0, 100) is None
    seen.writes = 1
    assert looks(seen, watch, 100, 500) == "idle at 220"


def test_a_reader_that_makes_progress_stays_and_one_that_makes_next_to_none_goes() -> None:
    seen, watch = Seen(), Watch(0.0)
    seen.frames = 1
    seen.bytes_out = seen.write_buffer_bytes = 1_000_000
    for now in range(0, 100):
        seen.reads += 1
        if now % 20 == 0 and now:
            seen.write_buffer_bytes -= PROGRESS_BYTES
        assert watch.overdue(seen, float(now), CONFIG) is None
    for now in range(100, 140):  # a byte a second
        seen.reads += 1
        seen.write_buffer_bytes -= 1
        if watch.overdue(seen, float(now), CONFIG) == "stalled":
            assert now == 110
            return
    raise AssertionError("it stayed")


def test_one_reply_above_the_bound_is_fine_while_it_is_being_read() -> None:
    seen, watch = Seen(), Watch(0.0)
    seen.frames = 1
    seen.bytes_out = seen.write_buffer_bytes = 16 << 20
    for now in range(0, 29):
        seen.reads += 1
        assert watch.overdue(seen, float(now), CONFIG) is None
        seen.write_buffer_bytes -= 300_000
    seen.write_buffer_bytes = 8 << 20
    assert watch.overdue(seen, 29.0, CONFIG) is None
    assert watch.overdue(seen, 31.0, CONFIG) is None
    seen.write_buffer_bytes += 1
    seen.bytes_out += 1
    watch.overdue(seen, 32.0, CONFIG)
    for now in range(33, 62):
        seen.bytes_out += PROGRESS_BYTES  # it reads, but as much is added
        assert watch.overdue(seen, float(now), CONFIG) is None
    assert watch.overdue(seen, 62.0, CONFIG) == "overfull"
