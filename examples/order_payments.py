"""Two topics joined as they flow: which orders were paid, how fast, and which never were.

    topic orders   ──┐
                     ├──▶ join on the order, within an hour ──▶ Parquet ──▶ SQL
    topic payments ──┘

Both sides wait for each other in the query's state. The watermark says for how long: an order whose hour is
over comes out without a payment, and is forgotten.

    python examples/order_payments.py localhost:9876
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f

import kourou
import kourou.spark

NOON = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)

ORDERS = [("o-1", 12.5, 0), ("o-2", 99.0, 2), ("o-3", 7.0, 5), ("o-4", 20.0, 10)]
PAYMENTS = [("o-1", 1), ("o-3", 50), ("o-2", 75)]  # the last one comes after its hour
MUCH_LATER = 300
"""Minutes after noon: an order and a payment that move both watermarks on."""


@dataclass(frozen=True)
class Outcome:
    paid: list[Row]
    unpaid: list[Row]


def send(name_server: str, topic: str, rows: Iterable[dict[str, object]]) -> None:
    with kourou.Producer("shop", name_server) as producer:
        for row in rows:
            producer.send(kourou.Message(topic, json.dumps(row).encode(), keys=str(row["order"])))


def at(minute: int) -> str:
    return (NOON + timedelta(minutes=minute)).isoformat()


def stream(spark: SparkSession, name_server: str, topic: str, columns: str) -> DataFrame:
    return (
        spark.readStream.format("rocketmq")
        .option("namesrvAddr", name_server)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .schema("body binary")
        .load()
        .select(f.from_json(f.col("body").cast("string"), columns).alias("row"))
        .select("row.*")
    )


def write_joined(spark: SparkSession, name_server: str, orders: str, payments: str, folder: str) -> None:
    ordered = stream(spark, name_server, orders, "`order` string, amount double, at timestamp")
    paid = stream(spark, name_server, payments, "`order` string, at timestamp")
    joined = (
        ordered.withColumnsRenamed({"at": "orderedAt"})
        .withWatermark("orderedAt", "10 minutes")
        .join(
            paid.withColumnsRenamed({"order": "paidOrder", "at": "paidAt"}).withWatermark(
                "paidAt", "10 minutes"
            ),
            f.expr("order = paidOrder and paidAt between orderedAt and orderedAt + interval 1 hour"),
            "leftOuter",
        )
        .select("order", "amount", "orderedAt", "paidAt")
    )
    query = (
        joined.writeStream.format("parquet")
        .option("path", f"{folder}/orders")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def run(
    spark: SparkSession, name_server: str, folder: str, orders: str = "orders", payments: str = "payments"
) -> Outcome:
    send(
        name_server,
        orders,
        [{"order": name, "amount": amount, "at": at(minute)} for name, amount, minute in ORDERS],
    )
    send(name_server, payments, [{"order": name, "at": at(minute)} for name, minute in PAYMENTS])
    write_joined(spark, name_server, orders, payments, folder)
    send(name_server, orders, [{"order": "o-9", "amount": 1.0, "at": at(MUCH_LATER)}])
    send(name_server, payments, [{"order": "o-9", "at": at(MUCH_LATER + 1)}])
    write_joined(spark, name_server, orders, payments, folder)
    spark.read.parquet(f"{folder}/orders").createOrReplaceTempView("joined")
    return Outcome(
        spark.sql(
            "select order, amount, timestampdiff(minute, orderedAt, paidAt) as minutes"
            " from joined where paidAt is not null order by order"
        ).collect(),
        spark.sql("select order, amount from joined where paidAt is null order by order").collect(),
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        outcome = run(kourou.spark.session("orders"), sys.argv[1], folder)
    for row in outcome.paid:
        print(f"{row.order}: {row.amount:.2f}, paid after {row.minutes} minutes")
    for row in outcome.unpaid:
        print(f"{row.order}: {row.amount:.2f}, not paid within an hour")
