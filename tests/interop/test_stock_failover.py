"""A stock client follows a master that was elected, through its ordinary routes."""

from __future__ import annotations

import importlib.util
import signal
import threading
import time
from pathlib import Path

import pytest

from kourou.admin import Connection
from kourou.admin import cluster as clusters
from tests.interop.stock_clients import cpp_client
from tests.machine_clusters import machine_cluster

ROUTE_SECONDS = 30.0
FOLLOWS_SECONDS_MAX = 35.0
TOPIC = "followed"

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(
        importlib.util.find_spec("rocketmq") is None,
        reason="THE STOCK C++ CLIENT WAS NOT TESTED: the wheel rocketmq==0.4.4 is not installed",
    ),
]


@pytest.mark.timeout(600)
def test_a_stock_producer_follows_within_its_own_period(tmp_path: Path) -> None:
    with (
        machine_cluster(tmp_path / "c", "3n-auto") as machine,
        Connection(machine.name_servers) as connection,
    ):
        names = {server.address: server.name for server in machine.servers()}
        killed_at: list[float] = []

        def kill() -> None:
            master = clusters.node(connection, "broker-a")
            assert master.is_master
            killed_at.append(time.time())
            machine.tell(names[master.address], signal.SIGKILL)

        timer = threading.Timer(5.0, kill)
        timer.start()
        try:
            said = cpp_client(
                tmp_path, "keep-on", machine.name_servers, "stock", TOPIC, "400", "55", timeout=90
            )
        finally:
            timer.cancel()
        sent = [each["at"] for each in said if each["event"] == "sent" and each["status"] == 0]
        after = [at for at in sent if at > killed_at[0] + 1.0]
        assert [at for at in sent if at < killed_at[0]], "nothing was sent before the kill"
        assert after, "nothing was sent after the kill"
        print(f"the stock producer went on {after[0] - killed_at[0]:.1f} s after the kill")
        assert after[0] - killed_at[0] <= FOLLOWS_SECONDS_MAX
