"""A Delta table over a lake's files, through the `deltalake` wheel: no jar, no JVM.

The log lies in `LAKE/_delta_log`. Each commit of the lake becomes one version of the table, and its number
the version of an application transaction of Delta's: a commit that the table has already is recognised by it.
"""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING

import pyarrow as pa

from kourou.errors import MissingExtra
from kourou.spark.columns import SCHEMA
from kourou.spark.pipelines.lake import Commit, LakeFile

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from deltalake.transaction import AddAction

APPLICATION = "kourou-lake"
PARTITIONED_BY = ["topic", "date"]
TABLE_SCHEMA = SCHEMA.append(pa.field("date", pa.date32()))


class DeltaLog:
    def __init__(self, folder: str) -> None:
        self._folder = folder

    def append(self, commit: Commit) -> None:
        deltalake = _deltalake()
        table = self._table()
        known = table.transaction_version(APPLICATION)
        if not commit.files or (known is not None and known >= commit.number):
            return
        table.create_write_transaction(
            actions=[_added(file, commit.written_ms) for file in commit.files],
            mode="append",
            schema=table.schema(),
            partition_by=PARTITIONED_BY,
            commit_properties=deltalake.CommitProperties(
                custom_metadata={"kourou.query": commit.query_id, "kourou.batch": str(commit.batch_id)},
                app_transactions=[deltalake.Transaction(APPLICATION, commit.number)],
            ),
        )

    def _table(self) -> DeltaTable:
        deltalake = _deltalake()
        if deltalake.DeltaTable.is_deltatable(self._folder):
            return deltalake.DeltaTable(self._folder)  # type: ignore[no-any-return]
        return deltalake.DeltaTable.create(  # type: ignore[no-any-return]
            self._folder,
            schema=deltalake.Schema.from_arrow(TABLE_SCHEMA),
            partition_by=PARTITIONED_BY,
            name="kourou",
        )


def _added(file: LakeFile, written_ms: int) -> AddAction:
    from deltalake.transaction import AddAction

    return AddAction(
        path=file.path,
        size=file.size,
        partition_values={"topic": file.topic, "date": file.date},
        modification_time=written_ms,
        data_change=True,
        stats=f'{{"numRecords":{file.rows}}}',
    )


def _deltalake() -> ModuleType:
    try:
        import deltalake
    except ImportError as error:
        raise MissingExtra("a Delta table needs an extra: pip install 'kourou[spark]'") from error
    return deltalake
