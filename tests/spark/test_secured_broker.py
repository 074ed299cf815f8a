"""Spark at a cluster that talks to nobody without TLS, a certificate and a signature."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import kourou
from kourou.spark.source import RocketMQDataSource
from tests.guarded_cluster import SHOP, guarded_cluster
from tests.remoting.certificates import Authority

TOPIC = "Orders"
"""Which the shop may read and write."""

NAME = "mq.example"
"""In the certificate of the servers, beside their address."""


@dataclass(frozen=True)
class Secured:
    options: dict[str, str]
    """Of a source or a sink that is let in."""
    credentials: Path


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    authority = Authority(folder)
    server, client = authority.issue("server", "127.0.0.1", NAME), authority.issue("client")
    settings = {
        "tls.server.mode": "enforcing",
        "tls.server.certPath": server.certificate,
        "tls.server.keyPath": server.key,
        "tls.server.trustCertPath": authority.ca,
        "tls.server.need.client.auth": "require",
        "tls.enable": "true",
        "tls.client.trustCertPath": authority.ca,
        "tls.client.certPath": client.certificate,
        "tls.client.keyPath": client.key,
    }
    credentials = folder / "credentials"
    credentials.write_text(f"accessKey={SHOP.access_key}\nsecretKey={SHOP.secret_key}\n")
    with guarded_cluster(folder / "cluster", **settings) as cluster:
        tls = kourou.ClientTls(trust=authority.ca, certificate=client.certificate, key=client.key)
        with kourou.Producer("shop", cluster.name_server, tls=tls, access=SHOP) as producer:
            producer.send(kourou.Message(TOPIC, b"0"))
        options = {
            "namesrvAddr": cluster.name_server,
            "credentialsFile": str(credentials),
            "tls": "true",
            "tlsTrust": authority.ca,
            "tlsCertificate": client.certificate,
            "tlsKey": client.key,
        }
        yield Secured(options, credentials)


def test_rows_are_written_and_read_with_a_certificate_and_a_key_from_a_file(
    spark: SparkSession, secured: Secured
) -> None:
    ways = ("at-least-once", "exactly-once")
    for delivery in ways:
        rows = spark.range(1, 11).selectExpr(f"concat('{delivery} ', id) AS body").write.format("rocketmq")
        rows.options(**secured.options, topic=TOPIC, delivery=delivery).mode("append").save()
    read = spark.read.format("rocketmq").options(**secured.options, subscribe=TOPIC)
    found = {bytes(row.body).decode() for row in read.schema("body binary").load().collect()}
    assert found == {"0", *(f"{way} {number}" for way in ways for number in range(1, 11))}


def test_who_has_the_wrong_secret_is_told_so(secured: Secured, tmp_path: Path) -> None:
    wrong = tmp_path / "credentials"
    wrong.write_text(secured.credentials.read_text().replace(SHOP.secret_key, "not-the-secret"))
    with pytest.raises(kourou.Refused, match="signature"):
        planned({**secured.options, "credentialsFile": str(wrong)})


def test_who_does_not_speak_tls_does_not_get_through(secured: Secured) -> None:
    with pytest.raises(kourou.Unreachable):
        planned({name: value for name, value in secured.options.items() if not name.startswith("tls")})


def test_the_name_in_the_certificate_is_the_one_that_was_said(secured: Secured) -> None:
    planned({**secured.options, "tlsServerName": NAME})
    with pytest.raises(kourou.Unreachable, match=r"elsewhere\.example"):
        planned({**secured.options, "tlsServerName": "elsewhere.example"})


def planned(options: dict[str, str]) -> None:
    """What the driver does first, without Spark."""
    source = RocketMQDataSource({**options, "subscribe": TOPIC, "fetchOffset.numRetries": "1"})
    source.reader(source.schema()).partitions()
