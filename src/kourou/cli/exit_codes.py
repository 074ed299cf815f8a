"""What a command ends with: one table, for every command.

An error brings its own code (`exit_code` in `kourou.errors`); a command whose result is no error, and yet not
what was hoped for, takes one from here. Servers end with the same codes: a supervisor that starts again
what failed leaves 2 and 74 alone, as no further try would help.
"""

from __future__ import annotations

OK = 0
FAILED = 1
USAGE = 2
NOT_FOUND = 3
DENIED = 4
UNREACHABLE = 5
CHECK_FAILED = 6
DISK_FAILED = 74
INTERRUPTED = 130

MEANINGS = {
    OK: "done",
    FAILED: "failed, or declined; also a port or a data folder that another process has",
    USAGE: "wrong usage or configuration; nothing was done",
    NOT_FOUND: "no such topic, group, message, key, broker or cluster",
    DENIED: "denied",
    UNREACHABLE: "a name server or broker does not answer, or there is no master",
    CHECK_FAILED: "a check found something wrong, or a drain something that would be lost",
    DISK_FAILED: "the disk failed, or what is on it is not what was written",
    INTERRUPTED: "interrupted",
}


def as_table() -> str:
    """The table as the pages of the documentation have it."""
    return "\n".join(
        [
            "| code | meaning |",
            "|---|---|",
            *(f"| {code} | {meaning} |" for code, meaning in MEANINGS.items()),
        ]
    )
