"""A streaming query from its start to its end: how often it turns, and who may stop it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

POLL_SECONDS = 0.2


def trigger(every: float | None) -> dict[str, Any]:
    """For `.trigger(**…)`: a batch so often, or (None) until everything is read that is there now."""
    return {"availableNow": True} if every is None else {"processingTime": f"{every} seconds"}


def wait_for(query: StreamingQuery, stop: threading.Event | None) -> None:
    """Until the query has ended, or shall end; it is over afterwards. Raises what it failed with."""
    try:
        while not query.awaitTermination(POLL_SECONDS):  # type: ignore[arg-type]  # parts of a second are fine
            if stop is not None and stop.is_set():
                return
    finally:
        query.stop()
