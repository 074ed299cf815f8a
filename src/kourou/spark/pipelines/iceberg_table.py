"""An Iceberg table over a lake's files, through the `pyiceberg` wheel: no jar, no JVM.

The catalog is an SQLite file, `LAKE/_kourou/iceberg.db`, the table is `kourou.messages`, its metadata lie in
`LAKE/_kourou/iceberg`. Each commit of the lake becomes one snapshot that carries its number, by which a
commit that the table has already is recognised.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from kourou.errors import MissingExtra
from kourou.spark.columns import SCHEMA
from kourou.spark.pipelines.lake import META, Commit

if TYPE_CHECKING:
    from pyiceberg.table import Table

NAMESPACE, NAME = "kourou", "messages"
NUMBER = "kourou.commit"


class IcebergTable:
    def __init__(self, folder: str) -> None:
        self._folder = folder

    def append(self, commit: Commit) -> None:
        if not commit.files:
            return
        table = self.table()
        if commit.number <= _last_commit(table):
            return
        table.add_files(
            [f"file://{os.path.join(self._folder, file.path)}" for file in commit.files],
            snapshot_properties={NUMBER: str(commit.number)},
            check_duplicate_files=False,  # the number has said so already
        )

    def table(self) -> Table:
        """The table, made when it is not there."""
        catalog = self._catalog()
        name = (NAMESPACE, NAME)
        if catalog.table_exists(name):
            return catalog.load_table(name)  # type: ignore[no-any-return]
        catalog.create_namespace_if_not_exists(NAMESPACE)
        table = catalog.create_table(name, schema=SCHEMA)
        with table.update_spec() as spec:
            spec.add_identity("topic")
            spec.add_field("storeTimestamp", "day", "date")
        return table  # type: ignore[no-any-return]

    def _catalog(self) -> Any:
        try:
            from pyiceberg.catalog.sql import SqlCatalog
        except ImportError as error:
            raise MissingExtra("an Iceberg table needs an extra: pip install 'kourou[iceberg]'") from error
        meta = os.path.join(self._folder, META)
        return SqlCatalog(
            "kourou", uri=f"sqlite:///{meta}/iceberg.db", warehouse=f"file://{os.path.join(meta, 'iceberg')}"
        )


def _last_commit(table: Table) -> int:
    """The last commit of the lake that the table knows; -1 when there is none."""
    return max(
        (
            int(snapshot.summary.get(NUMBER) or -1)
            for snapshot in table.metadata.snapshots
            if snapshot.summary is not None
        ),
        default=-1,
    )
