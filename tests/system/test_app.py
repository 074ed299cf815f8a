"""A program of handlers, in this process and as `kourou run` runs it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import kourou
from kourou.cli.run import load

PROGRAMME = """
from dataclasses import dataclass
import kourou

@dataclass
class Order:
    number: int

app = kourou.App(group="kitchen", start="earliest")

@app.on("meals")
def cook(order: Order) -> None:
    print(f"cooking {order.number}", flush=True)
"""


@pytest.fixture(scope="module")
def broker() -> Iterator[kourou.LocalBroker]:
    with kourou.LocalBroker() as running:
        yield running


@dataclass
class Order:
    number: int


def test_groups_and_payloads(broker: kourou.LocalBroker) -> None:
    mailed: list[int] = []
    cooked: list[str] = []
    app = kourou.App(broker.name_server, group="kitchen-1", start="earliest")

    @app.on("orders", group="mail", tag="new")
    def mail(order: Order) -> None:
        mailed.append(order.number)

    @app.on("orders")
    async def cook(text: str, message: kourou.ReceivedMessage) -> None:
        cooked.append(f"{message.tags} {text}")

    async def run() -> None:
        await app.start()
        with pytest.raises(kourou.ConfigError, match="running already"):
            await app.start()
        async with asyncio.timeout(10):
            while len(mailed) < 1 or len(cooked) < 3:
                await asyncio.sleep(0.01)
        await app.stop()

    with kourou.Producer("shop", broker.name_server) as producer:
        producer.send(kourou.Message("orders", b'{"number": 1}', tags="new"))
        producer.send(kourou.Message("orders", b'{"number": 2}', tags="paid"))
        producer.send(kourou.Message("orders", b"not an order", tags="new"))
    asyncio.run(run())
    assert mailed == [1]
    assert sorted(cooked) == ["new not an order", 'new {"number": 1}', 'paid {"number": 2}']
    with kourou.PullConsumer("undertaker", "%DLQ%mail", broker.name_server) as letters:
        assert [letter.body for letter in letters.receive()] == [b"not an order"]


@pytest.mark.parametrize("reload", [False, True])
def test_kourou_run_runs_an_app_until_it_is_told_to_stop(
    broker: kourou.LocalBroker, tmp_path: Path, reload: bool
) -> None:
    (tmp_path / "kitchen.py").write_text(PROGRAMME)
    command = [sys.executable, "-c", "from kourou.cli.main import main; main()", "run", "kitchen:app"]
    command += ["-n", broker.name_server, *(["--reload"] if reload else [])]
    output = tmp_path / "output.txt"
    with kourou.Producer("shop", broker.name_server) as producer, open(output, "wb") as sink:
        process = subprocess.Popen(command, cwd=tmp_path, stdout=sink, stderr=subprocess.STDOUT)
        try:
            producer.send(kourou.Message("meals", b'{"number": %d}' % (1 + reload)))
            wait_for(output, f"cooking {1 + reload}")
            if reload:
                (tmp_path / "kitchen.py").write_text(PROGRAMME.replace("cooking", "serving"))
                os.utime(tmp_path / "kitchen.py", (time.time() + 5, time.time() + 5))
                wait_for(output, "starting anew")
                producer.send(kourou.Message("meals", b'{"number": 3}'))
                wait_for(output, "serving 3")
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0
        finally:
            process.kill()
            process.wait()


@pytest.mark.parametrize(
    ("programme", "said"),
    [("def cook(:\n", "SyntaxError: invalid syntax"), ("1 / 0\n", "ZeroDivisionError: division by zero")],
)
def test_a_module_that_cannot_be_loaded_shows_its_own_lines_and_none_of_ours(
    tmp_path: Path, programme: str, said: str
) -> None:
    (tmp_path / "broken.py").write_text(programme)
    command = [sys.executable, "-c", "from kourou.cli.main import main; main()", "run", "broken:app"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=30, text=True)
    assert done.returncode == 1
    assert said in done.stderr
    assert "broken.py" in done.stderr
    assert "importlib" not in done.stderr
    assert "kourou" not in done.stderr.replace(str(tmp_path), "")


def wait_for(output: Path, text: str, seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while text not in output.read_text():
        assert time.monotonic() < deadline, f"{text!r} did not appear in:\n{output.read_text()}"
        time.sleep(0.05)


def misuse() -> dict[str, Callable[[], object]]:
    app = kourou.App("127.0.0.1:1")
    return {
        "no group": lambda: app.on("orders"),
        "give one": lambda: app.on("orders", group="g", tag="a", tags="b"),
        "illegal characters": lambda: app.on("no spaces", group="g"),
        "no handlers": lambda: asyncio.run(app.start()),
        "not MODULE:APP": lambda: load("kitchen"),
        "cannot import": lambda: load("no_such_kitchen:app"),
        "no App called": lambda: load("json:dumps"),
    }


@pytest.mark.parametrize("text", misuse())
def test_misuse_is_told(text: str) -> None:
    with pytest.raises(kourou.ConfigError, match=text):
        misuse()[text]()
