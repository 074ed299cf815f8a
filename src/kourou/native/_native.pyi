"""What `native/*.c` offers; each function says in C which loop of Python it stands for."""

from collections.abc import Callable, Sequence
from typing import Any

def crc32(data: bytes | bytearray | memoryview, sum: int = 0, /) -> int: ...

# frames.c
def split(data: bytes, frame: Callable[..., Any], /) -> tuple[list[Any], int, int]: ...
def run_end(frames: list[Any], at: int, key: bytes, /) -> int: ...
def total(frames: list[Any], /) -> int: ...

# sends.c
def look_at_sends(
    frames: list[Any],
    asked: list[tuple[int, bytes, int]],
    run: list[Any],
    queues_of: Callable[[str], int],
    stored_as: Callable[[str, str, int], tuple[bytes, bytes, int, int] | None],
    known: list[Any],
    body_max: int,
    /,
) -> None: ...
def append_sends(
    run: list[tuple[tuple[str, int], bytes, bytes, int, int, int, int, int, int]],
    born_hosts: list[bytes],
    prepared_offsets: list[int] | None,
    store_host: bytes,
    table: dict[tuple[str, int], Any],
    at: int,
    room_end: int,
    store_ms: int,
    places: list[tuple[int, int]],
    staged_queues: list[Any],
    hashes: list[int] | None,
    hash_places: list[int],
    keyed: list[Any],
    /,
) -> tuple[bytes, int]: ...
def accepting(
    parts: tuple[bytes, ...],
    host: bytes,
    asked: list[tuple[int, bytes, int]],
    places: list[tuple[int, int]],
    /,
) -> list[bytes]: ...

# index.c
def index_entries(
    hashes: list[int],
    places: list[int],
    first: int,
    seconds: int,
    slots: int,
    page_bits: int,
    pages: list[Any],
    load_page: Callable[[int], Any],
    /,
) -> tuple[bytes, list[int]]: ...

# records.c
def walk(
    data: bytes | bytearray | memoryview,
    at: int,
    place: int,
    queue_of: Callable[[bytes, int], tuple[int, Any] | None],
    has_keys: bool,
    /,
) -> tuple[int, tuple[int, int, int], list[tuple[Any, list[int]]], list[int], list[int]]: ...
def add_keys(
    messages: list[tuple[bytes, bytes, int, int]], at: int, hashes: list[int], places: list[int], /
) -> int: ...

# columns.c
def record_starts(data: bytes | bytearray | memoryview, stop: int, /) -> tuple[bytes, int]: ...
def record_parts(
    data: bytes | bytearray | memoryview,
    starts: bytes | bytearray | memoryview,
    table: bytearray | memoryview,
    sys_flags: bytearray | memoryview,
    /,
) -> int: ...
def piece_sums(
    data: bytes | bytearray | memoryview,
    froms: bytes | bytearray | memoryview,
    tos: bytes | bytearray | memoryview,
    sums: bytearray | memoryview,
    /,
) -> None: ...
def pick_pieces(
    data: bytes | bytearray | memoryview,
    places: bytes | bytearray | memoryview,
    lengths: bytes | bytearray | memoryview,
    bounds: bytearray | memoryview,
    picked: bytearray | memoryview,
    /,
) -> None: ...
def property_entries(
    data: bytes | bytearray | memoryview, bounds: bytes | bytearray | memoryview, /
) -> tuple[bytes, bytes, int]: ...
def property_texts(
    data: bytes | bytearray | memoryview, entries: bytes | bytearray | memoryview, /
) -> tuple[bytes, bytes, bytes, bytes]: ...
def property_values(
    data: bytes | bytearray | memoryview,
    firsts: bytes | bytearray | memoryview,
    entries: bytes | bytearray | memoryview,
    name: bytes | bytearray | memoryview,
    /,
) -> tuple[int, bytes, bytes, bytes]: ...
def join_batch(
    bodies: bytes | bytearray | memoryview,
    body_bounds: bytes | bytearray | memoryview,
    properties: bytes | bytearray | memoryview,
    property_bounds: bytes | bytearray | memoryview,
    flags: bytes | bytearray | memoryview,
    rows: bytes | bytearray | memoryview,
    ends: bytearray | memoryview,
    joined: bytearray | memoryview,
    /,
) -> None: ...

# pulls.c
def pull_reply(
    template: bytes,
    broker_id: int,
    least: int,
    most: int,
    opaque: int,
    entries: bytes,
    first: int,
    verdicts: bytes | None,
    queue_offset: int,
    count_max: int,
    bytes_max: int,
    scan_max: int,
    block_entries: int,
    wanted: frozenset[int] | None,
    lowest_place: int,
    view_of: Callable[[int, int], memoryview | None],
    /,
) -> tuple[tuple[bytes], int, int, int, int] | bool | None: ...
def kept_reply(
    queue: Any,
    config: Any,
    kept: dict[tuple[Any, int], bytes],
    entries_together: int,
    block_entries: int,
    queue_offset: int,
    count_max: int,
    wanted: frozenset[int] | None,
    template: bytes,
    opaque: int,
    lowest_place: int,
    view_of: Callable[[int, int], memoryview | None],
    /,
) -> tuple[tuple[bytes], int, int, int, int] | None: ...
def values_of_each(
    records: Sequence[bytes | memoryview],
    names: tuple[bytes, ...],
    plainly: Callable[[bytes | memoryview, tuple[bytes, ...]], tuple[bytes | None, ...] | None],
    /,
) -> list[tuple[bytes | None, ...] | None]: ...
