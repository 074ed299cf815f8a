"""The pages for monitoring, as a monitoring system asks for them."""

from __future__ import annotations

import re
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

import kourou
from tests.interop import ours
from tests.kourou_process import Serving


def pages_at(process: Serving) -> str:
    found = re.search(r"metrics at http://(\S+)/metrics", process.log)
    assert found is not None, process.log
    return f"http://{found[1]}"


def page(address: str) -> str:
    with urllib.request.urlopen(address, timeout=10) as reply:
        return str(reply.read().decode())


def value(address: str, name: str, **labels: str) -> float:
    families = text_string_to_metric_families(page(f"{address}/metrics"))
    return sum(
        sample.value
        for family in families
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    )


@pytest.mark.slow
def test_lag_is_the_truth_when_everything_is_at_rest(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"metricsExporterType": "PROM", "metricsPromExporterPort": 0}
    with (
        ours.name_server(tmp_path, **settings) as names,
        ours.broker(tmp_path, names.address, **settings) as broker,
    ):
        address = pages_at(broker.process)
        received = []
        with kourou.Producer("g", names.address) as producer:
            producer.send_all([kourou.Message("orders", b"%d" % n) for n in range(50)])
            with kourou.PushConsumer(
                "readers", names.address, start="earliest", commit_seconds=0.2
            ) as consumer:

                @consumer.on("orders")
                def take(message: kourou.ReceivedMessage) -> None:
                    received.append(message.body)

                consumer.start()
                deadline = time.monotonic() + 20
                while len(received) < 50 and time.monotonic() < deadline:
                    time.sleep(0.05)
            assert len(received) == 50
            assert (
                value(address, "rocketmq_consumer_lag_messages", consumer_group="readers", topic="orders")
                == 0
            )
            producer.send_all([kourou.Message("orders", b"%d" % n) for n in range(17)])
        time.sleep(1.1)  # a page is made once a second at most
        assert (
            value(address, "rocketmq_consumer_lag_messages", consumer_group="readers", topic="orders") == 17
        )
        assert value(address, "rocketmq_messages_in_total", topic="orders") == 67
        assert value(address, "rocketmq_messages_out_total", topic="orders") == 50
        for path in ("health", "ready"):
            assert page(f"{address}/{path}") == "ok\n"
            assert page(f"{pages_at(names.process)}/{path}") == "ok\n"
        assert value(pages_at(names.process), "rocketmq_namesrv_brokers") == 1
        with pytest.raises(urllib.error.HTTPError, match="404"):
            page(f"{address}/metrics/exporter")


def test_a_port_that_was_asked_for_and_is_taken_is_an_error_and_the_usual_one_is_not(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"metricsExporterType": "PROM", "metricsPromExporterPort": 0}
    with ours.name_server(tmp_path / "a", **settings) as first:
        taken = pages_at(first.process).rpartition(":")[2]
        from tests.kourou_process import kourou as command

        conf = tmp_path / "namesrv.conf"
        conf.write_text(f"listenPort=0\nmetricsExporterType=PROM\nmetricsPromExporterPort={taken}\n")
        done = command("nameserver", "-c", conf, folder=tmp_path)
        assert done.returncode == 1
        assert f"cannot serve HTTP on 127.0.0.1:{taken}" in done.stderr
        with ours.name_server(tmp_path / "b", metricsPromExporterPort=taken) as second:
            assert "no metrics: cannot serve HTTP" in second.process.log
