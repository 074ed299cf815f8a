"""Messages that were to be read and cannot be: said by queue, range and number, with the way out."""

from __future__ import annotations

from collections.abc import Sequence

from kourou.errors import MQError
from kourou.spark.planning import Loss

SHOWN = 5


class DataLoss(MQError):
    """Some messages are not there (any more). `losses` says which."""

    def __init__(self, losses: Sequence[Loss]) -> None:
        self.losses = tuple(losses)
        shown = "; ".join(str(loss) for loss in self.losses[:SHOWN])
        more = f"; and {len(self.losses) - SHOWN} more queues" if len(self.losses) > SHOWN else ""
        super().__init__(
            f"data loss: {shown}{more}. To go on without them set the option failOnDataLoss to false"
        )

    def __reduce__(self) -> tuple[type[DataLoss], tuple[tuple[Loss, ...]]]:
        return type(self), (self.losses,)  # a worker's error travels to its driver
