"""What `native/*.c` offers; each function says in C which loop of Python it stands for."""

from collections.abc import Callable
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
    run: list[Any],
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
