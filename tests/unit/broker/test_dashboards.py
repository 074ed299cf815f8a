"""The dashboard and the alert rules name metrics that exist, with labels they have."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from kourou.protocol.codes import RequestCode
from kourou.remoting.http import Page
from kourou.replication.status import LinkStatus
from tests.unit.broker.broker_world import BrokerWorld
from tests.unit.broker.test_metrics import heartbeat

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
METRIC = re.compile(r"\brocketmq_[a-z_]+")
LABELS = re.compile(r"\b(?:by|without) \(([^)]*)\)")
KNOWN_LABELS = {"job", "instance", "le"}


def expressions() -> list[str]:
    dashboard = json.loads((DEPLOY / "grafana" / "kourou.json").read_text())
    found = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    found += [each["query"] for each in dashboard["templating"]["list"] if each["type"] == "query"]
    rules = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text())
    found += [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    return found


@pytest.fixture
def existing(world: BrokerWorld) -> dict[str, set[str]]:
    """Every metric a busy broker and its name server show, with its labels."""
    from kourou.nameserver.metrics import NameServerMetrics

    server = world.name_server()
    world.start("127.0.0.1:9876", flush_disk_type="SYNC_FLUSH", metrics_exporter="AUTO")
    peer = world.connect()
    peer.create_topic("orders")
    peer.create_topic("%DLQ%readers")
    peer.ask(RequestCode.HEART_BEAT, body=heartbeat("readers", "orders"))
    producer = {"clientID": "p", "producerDataSet": [{"groupName": "g"}], "consumerDataSet": []}
    peer.ask(RequestCode.HEART_BEAT, body=json.dumps(producer).encode())
    peer.send("orders")
    peer.pull("orders")
    world.broker.stats.put("%DLQ%readers", 1, 100)
    world.broker.transactions.committed["orders"] += 1
    world.broker.transactions.rolled_back["orders"] += 1
    link = LinkStatus(
        member="replica-1",
        peer="127.0.0.1:5",
        broker_id=1,
        acked=0,
        sent=0,
        lag=10,
        is_in_sync=False,
        dialect="kourou",
        since_ms=0,
    )
    world.broker.metrics.links = lambda: [link]
    (port, *_) = world.broker._servers
    port._refused["connections_max"] += 1
    names = NameServerMetrics(
        server._config,
        routes=server.routes,
        brokers=server._brokers,
        lookups=lambda: server._route,
        server=lambda: server._server,
        address=lambda: server.address,
        access=server.access,
        clock=world.clock,
    )
    shown: dict[str, set[str]] = {}
    for figures in (world.broker.metrics.figures(), names.figures()):
        for name in figures.names:
            shown.setdefault(name, set()).update(figures.labels(name))
    shown["rocketmq_access_refused_total"] = {"node_id", "node_type", "reason"}  # with access control only
    return shown


def test_every_metric_in_dashboard_and_alerts_exists(existing: dict[str, set[str]]) -> None:
    used = {name for text in expressions() for name in METRIC.findall(text)}
    known = existing.keys() | {f"{name}_{end}" for name in existing for end in ("bucket", "sum", "count")}
    assert used - known == set()
    assert len(used) > 20


def test_every_label_they_group_by_exists(existing: dict[str, set[str]]) -> None:
    for text in expressions():
        labels = {label.strip() for found in LABELS.findall(text) for label in found.split(",")}
        names = {re.sub(r"_(bucket|sum|count)$", "", name) for name in METRIC.findall(text)}
        have: set[str] = set().union(*(existing.get(name, set()) for name in names), KNOWN_LABELS)
        assert labels <= have, text


def test_the_page_of_the_how_to_names_all_there_is(existing: dict[str, set[str]]) -> None:
    page = (DEPLOY.parent / "docs" / "how-to" / "watch-with-prometheus.md").read_text()
    named = set(re.findall(r"`(rocketmq_[a-z_]+)`", page))
    assert existing.keys() - named == set()
    assert named - existing.keys() == set()


def test_alert_rules_have_what_prometheus_wants() -> None:
    rules: Any = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text())
    names = [rule["alert"] for group in rules["groups"] for rule in group["rules"]]
    assert len(set(names)) == len(names) >= 10
    for group in rules["groups"]:
        for rule in group["rules"]:
            assert rule["labels"]["severity"] in ("warning", "critical")
            assert rule["annotations"]["summary"]
            assert rule["expr"].count("(") == rule["expr"].count(")")


def test_a_dashboard_panel_has_a_place_and_an_expression() -> None:
    dashboard = json.loads((DEPLOY / "grafana" / "kourou.json").read_text())
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(ids)) == len(ids) >= 12
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in dashboard["panels"]}
    assert len(places) == len(ids)


def page_of(world: BrokerWorld, path: str) -> Page:
    async def asked() -> Page:
        page = world.broker.pages.page(path)
        assert page is not None
        return page if isinstance(page, Page) else await page

    page: Page = world._runner.run(asked())
    return page


def test_a_page_is_made_once_a_second_at_most(world: BrokerWorld) -> None:
    world.start()
    first = page_of(world, "/metrics")
    world.connect().send("orders")
    assert page_of(world, "/metrics") is first
    world.pass_time(2)
    assert b'topic="orders"' in page_of(world, "/metrics").body
    assert [page_of(world, path).status for path in ("/health", "/ready")] == [200, 200]
    assert world.broker.pages.page("/elsewhere") is None
    assert world.broker.pages.page("/metrics/exporter") is None, "only when asked for"


def test_the_exporters_names_are_there_when_asked_for(world: BrokerWorld) -> None:
    world.start(metrics_exporter_page=True)
    peer = world.connect()
    peer.create_topic("orders", queues=1)
    peer.ask(RequestCode.HEART_BEAT, body=heartbeat("readers", "orders"))
    peer.send("orders")
    page = page_of(world, "/metrics/exporter")
    for name in (
        "rocketmq_group_diff",
        "rocketmq_producer_offset",
        "rocketmq_broker_tps",
        "rocketmq_group_count",
    ):
        assert name.encode() in page.body
