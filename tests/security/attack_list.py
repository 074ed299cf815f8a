"""The attack list: 72 rows, what became of each, and the tests that show it.

A test belongs to a row by its name, wherever it is: `test_a17_…`. A few older ones are named here. What
cannot be tested yet says which part it waits for.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

TESTS = Path(__file__).resolve().parents[1]
_NUMBERED = re.compile(r"^(?:async )?def (test_a(\d+)_\w+)\(", re.MULTILINE)


class Row(NamedTuple):
    """One attack. `note` says what is different from the book; `waits_for` why there is no test."""

    number: int
    attack: str
    outcome: str
    also: tuple[str, ...] = ()
    note: str = ""
    waits_for: str = ""


GROUPS = {
    1: "Framing and decoding",
    18: "Messages and storage",
    38: "Authentication and authorisation",
    51: "Name server and replication",
    60: "Remote configuration and operations",
    66: "HTTP, metrics, console",
}

ROWS = (
    Row(1, "length 0xFFFFFFFF, negative, 0, 3", "closed at once"),
    Row(2, "length 16 MiB + 1", "closed at once"),
    Row(3, "length 16 MiB, then silence", "closed after 30 s; memory grows with received bytes only"),
    Row(4, "header longer than the frame; unknown serialization", "closed"),
    Row(5, "header empty, null, array, number, 100,000 deep", "closed, quickly"),
    Row(
        6,
        "JSON with duplicate keys",
        "the last one counts, in every reader alike: what is signed is what acts",
        note="taken, not refused: looking for them would cost every request",
    ),
    Row(7, "NaN, 1e999, digits without end, bad UTF-8, BOM", "closed"),
    Row(8, "binary header whose lengths lie", "closed"),
    Row(
        9,
        "100,000 fields, names of 60 KiB, empty, with NUL",
        "refused where fields are kept, skipped elsewhere",
    ),
    Row(
        10,
        "unknown codes, stray replies, one-way admin commands",
        "not supported; dropped; one-way changes only by whoever may make them",
    ),
    Row(11, "1,000 requests under one number", "each answered"),
    Row(12, "one byte at a time on many connections", "closed by the frame timer"),
    Row(
        13,
        "connections without end from one address",
        "refused above the bound; no descriptors left is survived",
        also=(
            "tests/remoting/test_real_sockets.py::test_running_out_of_files_turns_peers_away_and_is_survived",
        ),
        note="the bound is 2,000 of one address, settable: pools of clients behind one address are usual",
    ),
    Row(14, "TLS, HTTP, SSH, noise on the plain port", "closed; one log line a minute"),
    Row(15, "connect and reset without end", "nothing stays behind"),
    Row(16, "asking without reading", "no longer read from, then closed"),
    Row(
        17,
        "reading a byte a second",
        "closed",
        also=(
            "tests/remoting/test_real_sockets.py::test_a_slow_reader_is_disconnected_and_others_are_unaffected",
        ),
    ),
    Row(18, "topics that are paths", "refused; no file outside the store"),
    Row(19, "topics with control characters, too long, empty", "refused"),
    Row(20, "groups, clients, brokers, clusters with such names", "refused, or shown as text"),
    Row(21, "sending to reserved topics", "refused"),
    Row(
        22,
        "another group's retries, dead letters, or messages by id",
        "refused without SUB on that group or topic",
    ),
    Row(
        23,
        "auto-create flood",
        "capped (1,000)",
        note="a total, not one per address",
    ),
    Row(24, "decompression bombs", "stopped at 16 MiB or 200:1; a broker does not inflate"),
    Row(25, "sysFlag with odd bits", "hosts are written as they are; readable after it"),
    Row(26, "forged or broken properties", "overwritten or kept as plain text"),
    Row(27, "batches whose lengths lie", "refused as a whole"),
    Row(28, "queue ids, offsets and counts that cannot be", "refused or clamped"),
    Row(29, "delays in the past, far away, overflowing", "now; refused"),
    Row(30, "message id that names another host", "nobody is called"),
    Row(31, "commits far beyond, negative, for no queue", "no message is hidden by it"),
    Row(32, "ending another's transaction, or twice", "refused"),
    Row(33, "answers about unknown transactions", "refused"),
    Row(34, "SQL92 without end", "refused; linear time"),
    Row(35, "10,000 tags; tags that hash alike", "refused; told apart by the client"),
    Row(
        36,
        "store in use, unusable, replaced",
        "refused to start",
        note="a symbolic link as data folder is followed: operators use them",
    ),
    Row(
        37,
        "disk filled by a producer",
        "writers refused, readers and operators served",
        also=("tests/system/test_full_disk.py",),
        note="one watermark for the disk, no quota per topic",
    ),
    Row(38, "no credentials, every code", "the same refusal for all; a code without a rule fails the test"),
    Row(39, "valid account, wrong rights", "as documented"),
    Row(40, "signatures that are wrong by one bit, empty, huge", "refused; in a time that tells nothing"),
    Row(
        41,
        "bytes moved between signed fields",
        "rights are looked up for what a request says",
        note="the original's signature allows it, and stock clients know no other",
    ),
    Row(
        42,
        "captured request replayed",
        "refused with aclReplayWindowSeconds; under another code that code's rights count",
        note="without the window a signature holds for ever, as in the original: use TLS",
    ),
    Row(43, "finding out who exists", "same text, same time"),
    Row(44, "guessing", "0.1 to 1 s for each answer; a right signature is never kept waiting"),
    Row(45, "forged origin to match a white list", "the socket's address counts"),
    Row(46, "reading secrets anywhere", "a canary was searched in every answer, log, page and file"),
    Row(47, "confusing patterns", "exact names, prefixes with a star at the end; case counts"),
    Row(
        48,
        "TLS: expired, self-signed, wrong host, stranger's client certificate, old versions",
        "refused",
        note="revocation lists are not read: let certificates be short-lived",
    ),
    Row(49, "stripping TLS", "a client that wants TLS talks nothing else"),
    Row(50, "cookie fixation, theft, reuse", "rotated at login, dead after logout and change"),
    Row(
        51,
        "false broker registered, true one taken away",
        "refused without the right to change the cluster",
        note="a broker's name is not bound to its account",
    ),
    Row(52, "changes at a name server by strangers", "refused"),
    Row(53, "registrations without end", "refused, also over many of them"),
    Row(
        54,
        "route of a rogue name server",
        "TLS verifies who a broker is",
        also=("tests/remoting/test_tls_sockets.py::test_a48_a_client_refuses_a_certificate_it_cannot_trust",),
        note="there is no list of allowed broker addresses in the client",
    ),
    Row(55, "HA port: noise, impossible acks", "dropped"),
    Row(56, "rogue replica asks for the log", "refused without the secret"),
    Row(57, "rogue master sends another log", "refused; data kept"),
    Row(58, "a million subscriptions in a heartbeat", "refused"),
    Row(59, "locking queues without being a member", "refused"),
    Row(60, "CVE-2023-33246", "refused; no server part can start a process"),
    Row(61, "CVE-2023-37582", "refused; no file written"),
    Row(62, "numbers out of range, switches that open doors", "refused"),
    Row(63, "injection into settings", "parsed as data, whole or not at all"),
    Row(64, "server output that attacks a terminal", "escaped and bounded"),
    Row(65, "crafted archive", "refused", waits_for="an import of archives: there is none"),
    Row(66, "cross-site requests", "refused"),
    Row(67, "stored script", "shown as text"),
    Row(68, "DNS rebinding", "refused"),
    Row(69, "request smuggling, path traversal", "400, closed; only static files"),
    Row(70, "huge exports, formulas in cells", "capped; escaped"),
    Row(71, "label explosion", "10,000 series of a metric, the rest in one"),
    Row(72, "requests by the console to anywhere", "refused"),
)


@cache
def numbered_tests() -> dict[int, tuple[str, ...]]:
    """Every test that is named after a row, as pytest calls it."""
    found: dict[int, list[str]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        for name, number in _NUMBERED.findall(path.read_text()):
            found.setdefault(int(number), []).append(f"tests/{path.relative_to(TESTS)}::{name}")
    return {number: tuple(names) for number, names in found.items()}


def shown_by(row: Row) -> tuple[str, ...]:
    return (*numbered_tests().get(row.number, ()), *row.also)


def counts() -> dict[str, int]:
    tested = [row for row in ROWS if shown_by(row)]
    return {
        "rows": len(ROWS),
        "tested": len(tested),
        "of them with a note": len([row for row in tested if row.note]),
        "n/a": len([row for row in ROWS if not shown_by(row)]),
    }


def counts_line() -> str:
    return ", ".join(f"{what}: {count}" for what, count in counts().items())


def table() -> str:
    """All rows as Markdown, for `docs/security.md`."""
    lines: list[str] = []
    for row in ROWS:
        if row.number in GROUPS:
            lines += [
                *([""] if lines else []),
                f"### {GROUPS[row.number]}",
                "",
                "| Id | Attack | What happens | State |",
                "| --- | --- | --- | --- |",
            ]
        what = f"{row.outcome} ({row.note})" if row.note else row.outcome
        shown = "tested" if shown_by(row) else f"n/a: waits for {row.waits_for}"
        lines.append(f"| A{row.number} | {row.attack} | {what} | {shown} |")
    return "\n".join(lines) + "\n"
