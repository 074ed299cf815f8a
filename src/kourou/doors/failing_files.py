"""A disk whose every operation on a store's files is a place to fail at (`failpoints.py`).

    path and operation            place
    commitlog/… pwrite            before-append-pwrite, after-append-pwrite
    checkpoint sync               before-checkpoint-flush, after-checkpoint-flush

A process has such a disk only when it was asked to fail somewhere; the usual one knows nothing of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

from kourou.doors import failpoints
from kourou.doors.failpoints import reached
from kourou.doors.files import File, Files, RealFiles

FilesT = TypeVar("FilesT", bound=Files)

_STATE_FILES = {
    "consumerOffset.json": "offset-snapshot",
    "topics.json": "topic-config",
    "subscriptionGroup.json": "group-config",
    "delayOffset.json": "delay-progress",
    "progress.json": "timer-progress",
    "pending": "timer-slot",
}

_NAMES = {
    ("log", "create"): "file-roll-create",
    ("log", "pwrite"): "append-pwrite",
    ("log", "sync"): "append-fdatasync",
    ("log", "allocate"): "file-roll-fallocate",
    ("log", "sync_folder"): "dir-fsync",
    ("log", "remove"): "retention-unlink",
    ("queue", "create"): "consumequeue-create",
    ("queue", "pwrite"): "consumequeue-write",
    ("queue", "sync"): "consumequeue-flush",
    ("queue", "remove"): "consumequeue-unlink",
    ("index", "pwrite"): "index-write",
    ("index", "sync"): "index-flush",
    ("checkpoint", "pwrite"): "checkpoint-write",
    ("checkpoint", "sync"): "checkpoint-flush",
    ("abort", "create"): "abort-file",
    ("abort", "remove"): "abort-file",
    ("config", "sync_folder"): "config-dir-fsync",
    **{
        (kind, operation): f"{kind}-{name}"
        for kind in _STATE_FILES.values()
        for operation, name in (("pwrite", "write"), ("sync", "flush"), ("rename", "rename"))
        if f"{kind}-{name}" in failpoints.AT_THE_DISK
    },
}

_OF_ANY_FILE = {"pwrite": "any-write", "sync": "any-fdatasync", "rename": "any-rename"}


def machine_files(environment: Mapping[str, str]) -> RealFiles:
    """The machine's disk; with failpoints when the environment names any. Raises ConfigError."""
    return with_failpoints(RealFiles)() if failpoints.arm_from(environment) else RealFiles()


def place_of(operation: str, path: str) -> str | None:
    """What the place is called, without `before-` or `after-`; None when it has no name."""
    return _NAMES.get((_kind(path), operation))


def _kind(path: str) -> str:
    folder, _, name = path.rpartition("/")
    if "/commitlog" in path:
        return "log"
    if "/consumequeue/" in path:
        return "queue"
    if folder.endswith("/index"):
        return "index"
    if name in ("config", "timers"):
        return "config"
    if name in ("checkpoint", "abort"):
        return name
    return _STATE_FILES.get(name.removesuffix(".tmp"), "")


class _Around:
    """The places around an operation."""

    def __init__(self, places: list[str]) -> None:
        self._places = places

    def __enter__(self) -> None:
        for place in self._places:
            reached(f"before-{place}")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            for place in self._places:
                reached(f"after-{place}")


def _around(operation: str, path: str) -> AbstractContextManager[None]:
    places = [place for place in (_OF_ANY_FILE.get(operation), place_of(operation, path)) if place]
    return _Around(places) if places else nullcontext()


def with_failpoints(kind: type[FilesT]) -> type[FilesT]:
    """The same kind of files, each operation a place to fail at.

    A class of files does its atomic writes by its own `open`, `rename` and `sync_folder`: so the steps of
    these are places, too.
    """
    parent: Any = kind

    class Failing(parent):  # type: ignore[misc]
        def open(self, path: str, *, create: bool = False, read_only: bool = False) -> FailingFile:
            is_new = create and not self.exists(path)
            with _around("create", path) if is_new else nullcontext():
                return FailingFile(super().open(path, create=create, read_only=read_only))

        def rename(self, old: str, new: str) -> None:
            with _around("rename", new):
                super().rename(old, new)

        def remove(self, path: str) -> None:
            with _around("remove", path):
                super().remove(path)

        def sync_folder(self, folder: str) -> None:
            with _around("sync_folder", folder):
                super().sync_folder(folder)

    return Failing


class FailingFile:
    """An open file, with a place before and after each operation that changes it."""

    def __init__(self, file: File) -> None:
        self._file = file
        self.path = file.path
        self.pread = file.pread
        self.view = file.view
        self.size = file.size
        self.truncate = file.truncate
        self.data_from = file.data_from
        self.close: Callable[[], None] = file.close

    def pwrite(self, data: bytes | bytearray | memoryview, at: int) -> None:
        with _around("pwrite", self.path):
            self._file.pwrite(data, at)

    def allocate(self, size: int, *, at: int = 0) -> None:
        with _around("allocate", self.path):
            self._file.allocate(size, at=at)

    def sync(self) -> None:
        with _around("sync", self.path):
            self._file.sync()
