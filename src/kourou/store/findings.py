"""What a check found in a data folder, and what can be done about it.

    Finding    file, place in it, what is there, what that means, and the action that puts it right, if any
    Report     counts of all that was looked at, and the findings

A finding is an `error` when something is lost or a broker would be misled, a `note` when it is worth knowing
and nothing needs to be done. Actions are plain values: `repair` carries them out, `check` only names them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

ERROR: Literal["error"] = "error"
NOTE: Literal["note"] = "note"

QUARANTINE = "quarantine"
"""The folder, below the root, that keeps what a repair replaces."""


@dataclass(frozen=True)
class MoveAside:
    """A file that does not belong where it is."""

    path: str

    def __str__(self) -> str:
        return f"move it to {QUARANTINE}"


@dataclass(frozen=True)
class FillIn:
    """A file of the log that is missing, or too short: zeros take the place of what is not there."""

    path: str
    size: int

    def __str__(self) -> str:
        return f"make it {self.size} bytes long, zeros where nothing is"


@dataclass(frozen=True)
class SetAside:
    """Bytes of the log that make no record: kept aside, and replaced by records that nobody is shown."""

    start: int
    end: int

    def __str__(self) -> str:
        return f"copy {self.end - self.start} bytes to {QUARANTINE}, put invisible records in their place"


@dataclass(frozen=True)
class CutTail:
    """Bytes after the last record."""

    start: int
    end: int

    def __str__(self) -> str:
        return f"copy {self.end - self.start} bytes to {QUARANTINE}, end the log at {self.start}"


@dataclass(frozen=True)
class RebuildQueue:
    topic: str
    queue_id: int

    def __str__(self) -> str:
        return "build the queue again from the log"


@dataclass(frozen=True)
class RebuildIndex:
    def __str__(self) -> str:
        return "build the index again from the log"


@dataclass(frozen=True)
class RestoreState:
    """A small file whose previous generation is whole."""

    path: str

    def __str__(self) -> str:
        return "bring back the previous generation (.bak)"


@dataclass(frozen=True)
class RewriteCheckpoint:
    def __str__(self) -> str:
        return "write a new checkpoint"


Action = (
    MoveAside | FillIn | SetAside | CutTail | RebuildQueue | RebuildIndex | RestoreState | RewriteCheckpoint
)


@dataclass(frozen=True, kw_only=True)
class Finding:
    severity: Literal["error", "note"] = ERROR
    file: str
    """Below the folder that was checked."""
    offset: int | None = None
    """Where in the file; None when it is about all of it."""
    what: str
    meaning: str
    action: Action | None = None
    advice: str = ""
    """What a person can do, where there is no action."""

    @property
    def repair(self) -> str:
        return str(self.action) if self.action is not None else self.advice or "nothing: it does no harm"


@dataclass
class Report:
    folder: str
    is_closed: bool = True
    """Whether the broker that had it last has closed it."""
    log_files: int = 0
    log_bytes: int = 0
    """From the first byte of the log to its end."""
    records: int = 0
    hidden_records: int = 0
    """Of these: prepared and rolled back ones, which are in no queue."""
    unlisted_records: int = 0
    """Of these: those of topics that were deleted."""
    queues: int = 0
    queue_entries: int = 0
    stand_ins: int = 0
    """Of these: entries in the place of messages that were found damaged before."""
    index_files: int = 0
    index_entries: int = 0
    state_files: int = 0
    findings: list[Finding] = field(default_factory=list)

    @property
    def errors(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.severity == ERROR]

    @property
    def is_clean(self) -> bool:
        return not self.errors

    @property
    def actions(self) -> list[Action]:
        """All that a repair would do, each once."""
        return list(dict.fromkeys(finding.action for finding in self.findings if finding.action is not None))

    def counts(self) -> dict[str, int]:
        return {
            "log_files": self.log_files,
            "log_bytes": self.log_bytes,
            "records": self.records,
            "hidden_records": self.hidden_records,
            "unlisted_records": self.unlisted_records,
            "queues": self.queues,
            "queue_entries": self.queue_entries,
            "stand_ins": self.stand_ins,
            "index_files": self.index_files,
            "index_entries": self.index_entries,
            "state_files": self.state_files,
        }
