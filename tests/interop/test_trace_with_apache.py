"""Apache's own tool reads the message trace of our producers and consumers, at our broker and at Apache's."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

import kourou
from tests.interop import apache, ours
from tests.interop.ours import wait_until

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]


@pytest.mark.parametrize("kind", ["ours", "apache"])
def test_mqadmin_shows_what_was_sent_and_handled(kind: str, version: str, tmp_path: Path) -> None:
    with ExitStack() as stack:
        if kind == "ours":
            name_server = stack.enter_context(ours.name_server(tmp_path)).address
            stack.enter_context(ours.broker(tmp_path, name_server, traceTopicEnable="true"))
        else:
            name_server = stack.enter_context(apache.name_server(version, tmp_path)).address
            stack.enter_context(apache.broker(version, tmp_path, name_server, traceTopicEnable="true"))
        with kourou.Producer("traced-shop", name_server, send_timeout=10.0, trace=True) as producer:
            sent = producer.send(kourou.Message("Traced", b"espresso", tags="new", keys="k1"))
        with kourou.PushConsumer("traced-billing", name_server, start="earliest", trace=True) as consumer:

            @consumer.on("Traced")
            def bill(message: kourou.ReceivedMessage) -> None:
                consumer.stop()

            consumer.run_until_stopped()
        said = ""

        def is_shown() -> bool:
            nonlocal said
            verb = f"queryMsgTraceById -n {name_server} -i {sent.message_id}"
            (said,) = apache.mqadmin(version, tmp_path, verb)
            return "traced-shop" in said and "traced-billing" in said

        wait_until(is_shown, 60, "mqadmin showed both")
    assert "success" in said.lower()
