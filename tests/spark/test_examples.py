"""The worked examples under `examples/`, each end to end against a real broker."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import kourou
from examples import clickstream_sessions, fraud_alerts, order_payments
from kourou.local.published import make_topic

pytestmark = pytest.mark.timeout(600)


def test_clicks_become_sessions_and_what_is_too_late_is_dropped(
    spark: SparkSession, broker: kourou.LocalBroker, tmp_path: Path
) -> None:
    make_topic(broker.address, "clicks", 2)
    outcome = clickstream_sessions.run(spark, broker.name_server, str(tmp_path))
    assert [(row.user, row.clicks) for row in outcome.sessions] == [("anna", 4), ("ben", 2), ("anna", 1)]
    assert outcome.sessions[0].pages == ["/beans", "/cart", "/coffee", "/pay"]
    assert outcome.dropped == 1


def test_orders_find_their_payments_and_the_unpaid_come_out_after_an_hour(
    spark: SparkSession, broker: kourou.LocalBroker, tmp_path: Path
) -> None:
    for topic in ("orders", "payments"):
        make_topic(broker.address, topic, 2)
    outcome = order_payments.run(spark, broker.name_server, str(tmp_path))
    assert [(row.order, row.minutes) for row in outcome.paid] == [("o-1", 1), ("o-3", 45), ("o-9", 1)]
    assert [row.order for row in outcome.unpaid] == ["o-2", "o-4"]


def test_a_card_that_spends_too_much_is_told_once(
    spark: SparkSession, broker: kourou.LocalBroker, tmp_path: Path
) -> None:
    for topic in ("card-payments", "fraud-alerts"):
        make_topic(broker.address, topic, 2)
    alerts = fraud_alerts.run(spark, broker.name_server, str(tmp_path))
    assert alerts == [fraud_alerts.Alert("card-2", 1150.0, "fraud")]
    fraud_alerts.write_alerts(spark, broker.name_server, "card-payments", "fraud-alerts", str(tmp_path))
    assert fraud_alerts.read_alerts(broker.name_server, "fraud-alerts") == [], "nothing new, so no new alert"
