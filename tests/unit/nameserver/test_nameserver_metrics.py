"""A name server's figures."""

from __future__ import annotations

from kourou.nameserver.metrics import NameServerMetrics
from kourou.protocol.codes import RequestCode
from tests.security.attackers import request
from tests.unit.broker.broker_world import BrokerWorld


def test_heartbeats_expiries_and_lookups_are_told() -> None:
    world = BrokerWorld()
    try:
        server = world.name_server()
        metrics = NameServerMetrics(
            server._config,
            routes=server.routes,
            brokers=server._brokers,
            lookups=lambda: server._route,
            server=lambda: server._server,
            address=lambda: server.address,
            access=server.access,
            clock=world.clock,
        )
        broker = world.connect_to("127.0.0.1", 9876)
        fields = {"brokerName": "b", "brokerAddr": "127.0.0.1:1", "clusterName": "c", "brokerId": "0"}
        broker.begin(request(RequestCode.REGISTER_BROKER, b"", **fields, heartbeatTimeoutMillis="60000"))
        world.pass_time(20)
        broker.begin(request(RequestCode.BROKER_HEARTBEAT, b"", **fields))
        broker.begin(request(RequestCode.GET_ROUTEINFO_BY_TOPIC, b"", topic="unknown", kourouWatch="true"))
        world.pass_time(5)
        figures = metrics.figures()
        assert abs(figures.value("rocketmq_namesrv_broker_heartbeat_age_seconds", broker="b") - 5) < 1
        assert abs(figures.value("rocketmq_namesrv_broker_heartbeat_interval_seconds", broker="b") - 20) < 1
        assert figures.value("rocketmq_namesrv_broker_expiry_seconds") == 60
        assert figures.value("rocketmq_namesrv_brokers") == 1
        assert figures.value("rocketmq_namesrv_route_lookups_total") == 1
        assert figures.value("rocketmq_namesrv_route_lookups_missed_total") == 1
        assert figures.value("rocketmq_namesrv_route_watches") == 1
        assert figures.value("rocketmq_namesrv_route_news_total") == 0
        world.pass_time(90)
        figures = metrics.figures()
        assert figures.value("rocketmq_namesrv_broker_expired_total") == 1
        assert figures.value("rocketmq_namesrv_brokers") == 0
    finally:
        world.close()
