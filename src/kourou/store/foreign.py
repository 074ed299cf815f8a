"""What an Apache broker of 5.x may keep in formats that are not read here: told apart, and refused.

A folder like that must not be opened as if what cannot be read were not there: queues would be built anew,
and groups would begin anew.
"""

from __future__ import annotations

from typing import Final

from kourou.doors.files import Files
from kourou.errors import StoreForeign
from kourou.store.config import StoreConfig

_ROCKSDB_MARK: Final = "CURRENT"
"""A file that every RocksDB folder has."""
_ROCKSDB_TABLES: Final = ("rdb", "topics", "subscriptionGroups", "consumerOffsets")


def refuse_foreign_formats(files: Files, config: StoreConfig) -> None:
    """Raises StoreForeign, with the way out."""
    queues = config.queues_folder
    if files.exists(f"{queues}/{_ROCKSDB_MARK}"):
        raise StoreForeign(
            f"{queues} is a RocksDB folder (storeType=defaultRocksDB), which is not supported: "
            "start from the commit log alone, by moving this folder away"
        )
    if files.list(f"{config.root}/batchconsumequeue"):
        raise StoreForeign(
            f"{config.root}/batchconsumequeue: topics with queue.type=BatchCQ are not supported; have the "
            "Apache broker delete them, and remove this folder then"
        )
    for table in _ROCKSDB_TABLES:
        folder = f"{config.root}/config/{table}"
        if files.exists(f"{folder}/{_ROCKSDB_MARK}") and not files.exists(
            f"{config.root}/config/topics.json"
        ):
            raise StoreForeign(
                f"{folder} is a RocksDB folder: topics, groups and offsets in it are not read; have them "
                "written as JSON first (mqadmin rocksDBConfigToJson), or move it away to start without them"
            )
