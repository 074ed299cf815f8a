"""The end of a log that nobody else has, kept for whoever wants to look at it.

    diverged/20261116T080000Z-4096-9000/
        tail             the bytes of the log from 4096 to 9000
        manifest.json    why, which queues, how many messages, a CRC

A broker that was a master, and comes back to find another one in its place, may have messages that no one
else took. They were confirmed to nobody in the mode that asks for replicas; still they are not thrown away.
The store must be closed: its queues are put right by the recovery of the next `open`.

Bytes that make no record, and give way to something else, are kept beside it:

    quarantine/20261116T080000123Z/commitlog-4096-9000
"""

from __future__ import annotations

from contextlib import closing, suppress
from datetime import UTC, datetime

import msgspec

from kourou.doors.files import Files, is_full, make_lasting_folder
from kourou.errors import StoreLocked
from kourou.protocol.checksum import crc32
from kourou.store.commit_log import CommitLog
from kourou.store.config import StoreConfig
from kourou.store.findings import QUARANTINE
from kourou.store.recovery import Finder

FOLDER = "diverged"
_COPY_BYTES = 1 << 20


class Manifest(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What was set aside."""

    start: int
    end: int
    crc32: int
    why: str
    time: str
    messages: int
    queues: dict[str, tuple[int, int]]
    """By `topic/queue id`: the first and the last queue offset."""


def copy_to_quarantine(files: Files, log: CommitLog, folder: str, start: int, end: int) -> str:
    """Copy bytes of the log that make no record to a file in `folder`; returns its path.

    Raises OSError. On a full disk nothing is left of the copy then, which would take the last room there is.
    """
    path = f"{folder}/commitlog-{start}-{end}"
    make_lasting_folder(files, folder)
    try:
        _copy(files, log, path, start, end)
    except OSError as error:
        if is_full(error):
            with suppress(OSError):
                files.remove(path)
                if not files.list(folder):
                    files.remove_folder(folder)
        raise
    files.sync_folder(folder)
    return path


def _copy(files: Files, log: CommitLog, path: str, start: int, end: int) -> None:
    with closing(files.open(path, create=True)) as file:
        file.truncate(end - start)
        at = start
        while at < end:
            data = log.read(min(_COPY_BYTES, end - at), at)
            if not data:
                break
            if data.strip(b"\0"):  # a file that was missing is all holes
                file.pwrite(data, at - start)
            at += len(data)
        file.sync()


def quarantine(root: str, now_ms: int) -> str:
    """The folder for what is replaced now."""
    moment = datetime.fromtimestamp(now_ms / 1000, UTC)
    return f"{root}/{QUARANTINE}/{moment:%Y%m%dT%H%M%S}{now_ms % 1000:03d}Z"


def set_aside(
    config: StoreConfig, files: Files, place: int, end: int, why: str, now_ms: int
) -> tuple[str, Manifest]:
    """Copy the log from `place` to `end` to a folder of its own, then let it end at `place`.

    Returns the folder, and what it holds. Raises OSError; the log is then as it was, or cut and kept.
    """
    lock = files.lock(f"{config.root}/lock")
    if lock is None:
        raise StoreLocked(f"{config.root} is in use: close the store first")
    try:
        log = CommitLog(config, files)
        log.load()
        time = datetime.fromtimestamp(now_ms / 1000, UTC).strftime("%Y%m%dT%H%M%SZ")
        folder = f"{config.root}/{FOLDER}/{time}-{place}-{end}"
        make_lasting_folder(files, f"{config.root}/{FOLDER}")
        make_lasting_folder(files, folder)
        manifest = _copied(config, log, files, f"{folder}/tail", place, end, why, time)
        files.write_atomically(f"{folder}/manifest.json", msgspec.json.format(msgspec.json.encode(manifest)))
        _cut(config, log, files, place)
        log.close()
    finally:
        lock.release()
    return folder, manifest


def _copied(
    config: StoreConfig, log: CommitLog, files: Files, path: str, place: int, end: int, why: str, time: str
) -> Manifest:
    tail = files.open(path, create=True)
    checksum = 0
    for at in range(place, end, _COPY_BYTES):
        data = log.read(min(_COPY_BYTES, end - at), at)
        tail.pwrite(data, at - place)
        checksum = crc32(data, checksum)
    tail.sync()
    tail.close()
    messages, queues = 0, dict[str, tuple[int, int]]()
    for found in Finder(config, log, place, end=end).sketches():
        messages += 1
        key = f"{found[6].decode('utf-8', 'replace')}/{found[4]}"
        queues[key] = (queues.get(key, (found[5], 0))[0], found[5])
    return Manifest(
        start=place, end=end, crc32=checksum, why=why, time=time, messages=messages, queues=queues
    )


def _cut(config: StoreConfig, log: CommitLog, files: Files, place: int) -> None:
    """The queues are wrong from here on: `abort`, and no checkpoint, have the next start build them anew."""
    abort = files.open(f"{config.root}/abort", create=True)
    abort.sync()
    abort.close()
    with suppress(FileNotFoundError):  # what was not closed in order may have none yet
        files.remove(f"{config.root}/checkpoint")
    files.sync_folder(config.root)
    log.segments.cut(place)
    for segment in log.segments.segments_between(place, place + 1):
        segment.file().sync()
    files.sync_folder(log.segments.folder)
