"""Can the small files of a data folder be read: `config/*.json`, their previous generations, the key of its
users, `timers`, and which topics were deleted.

A broker reads the previous generation (`.bak`) when a file is unreadable, and does not start when both are,
nor when it is that of its users.
"""

from __future__ import annotations

import msgspec

from kourou.access.sealing import unseal
from kourou.doors.files import Files
from kourou.errors import ConfigError, Corrupt, ProtocolError
from kourou.protocol import fastjson
from kourou.protocol.bodies import ConsumerOffsets, DelayOffsets, GroupTable, TopicTable
from kourou.protocol.sealed import check_seal
from kourou.store.deleted import FILE as DELETED_TOPICS
from kourou.store.deleted import read_deleted
from kourou.store.findings import NOTE, Finding, MoveAside, Report, RestoreState
from kourou.store.timers import read_timers

PREVIOUS = ".bak"
USERS = "config/users.json"
USERS_KEY = "config/users.key"
BALLOT = "config/election.json"
_TEMPORARY = ".tmp"
_EMPTY = "empty"


class _User(msgspec.Struct):
    secret: str


class _Users(msgspec.Struct):
    users: list[_User] = []


_KINDS: dict[str, type[msgspec.Struct]] = {
    "topics.json": TopicTable,
    "subscriptionGroup.json": GroupTable,
    "consumerOffset.json": ConsumerOffsets,
    "delayOffset.json": DelayOffsets,
    "users.json": _Users,
}


def check_state(files: Files, root: str, report: Report) -> frozenset[str] | None:
    """Read every small file; returns the topics that are known, None when nothing tells."""
    for folder in ("config", "timers"):
        names = files.list(f"{root}/{folder}")
        for name in names:
            if name.endswith(".json"):
                _check_file(files, root, f"{folder}/{name}", report)
            elif name.endswith(f".json{PREVIOUS}") and name.removesuffix(PREVIOUS) not in names:
                _check_file(files, root, f"{folder}/{name.removesuffix(PREVIOUS)}", report)
            elif name.endswith(_TEMPORARY):
                meaning = "a crash came while it was written; nobody reads it"
                report.findings.append(
                    Finding(severity=NOTE, file=f"{folder}/{name}", what="left over", meaning=meaning)
                )
    _check_timers(files, root, report)
    _check_users_key(files, root, report)
    _check_deleted(files, root, report)
    return _topics(files, root)


def _check_file(files: Files, root: str, name: str, report: Report) -> None:
    report.state_files += 1
    path = f"{root}/{name}"
    fault = _fault(files, path)
    if fault is None:
        previous = _fault(files, path + PREVIOUS) if files.exists(path + PREVIOUS) else None
        if previous is not None:
            report.findings.append(_previous_is_damaged(path, name, previous))
    elif name == BALLOT and files.exists(path):
        meaning = "a broker that elects its master does not start with it: it may have promised others more"
        advice = "move this folder away and start the broker with an empty one: it copies everything"
        report.findings.append(Finding(file=name, what=fault, meaning=meaning, advice=advice))
    elif fault == _EMPTY and not files.exists(path + PREVIOUS):
        report.findings.append(
            Finding(severity=NOTE, file=name, what=fault, meaning="a broker starts as if there were none")
        )
    elif _fault(files, path + PREVIOUS) is None:
        meaning = "a broker takes the previous generation instead"
        if path.endswith(USERS):
            meaning = "a broker does not start with it: the generation before may know users who are gone"
        report.findings.append(Finding(file=name, what=fault, meaning=meaning, action=RestoreState(path)))
    else:
        report.findings.append(
            Finding(
                file=name,
                what=f"{fault}, and there is no usable previous generation",
                meaning="a broker does not start with it",
                advice="bring it back from a backup, or move it and its .bak away to start without them",
            )
        )


def _previous_is_damaged(path: str, name: str, fault: str) -> Finding:
    return Finding(
        severity=NOTE,
        file=name + PREVIOUS,
        what=f"unreadable: {fault}",
        meaning="it was the previous generation; the present one is whole",
        action=MoveAside(path + PREVIOUS),
    )


def _fault(files: Files, path: str) -> str | None:
    """Why a file cannot be read; None when it can be."""
    if not files.exists(path):
        return "missing"
    data = files.read(path)
    if not data.strip():
        return _EMPTY
    kind = _KINDS.get(path.rpartition("/")[2].removesuffix(PREVIOUS))
    try:
        check_seal(data)
        if kind is not None:
            fastjson.decode(data, kind)
        elif not isinstance(fastjson.loads(data), dict):
            return "not a JSON object"
    except ProtocolError as error:
        return str(error)
    return None


def _check_timers(files: Files, root: str, report: Report) -> None:
    path = f"{root}/timers/pending"
    if not files.exists(path):
        return
    report.state_files += 1
    try:
        read_timers(files.read(path))
    except Corrupt as error:
        meaning = "a start finds out again from the log who waits for a time, and takes longer"
        report.findings.append(
            Finding(file="timers/pending", what=str(error), meaning=meaning, action=MoveAside(path))
        )


def _check_users_key(files: Files, root: str, report: Report) -> None:
    """The key is what it was, if it opens what was sealed with it."""
    path = f"{root}/{USERS}"
    if not files.exists(path) or _fault(files, path) is not None:
        return
    key_path = f"{root}/{USERS_KEY}"
    report.state_files += 1
    try:
        key = files.read(key_path) if files.exists(key_path) else b""
        for user in fastjson.decode(files.read(path), _Users).users:
            unseal(user.secret, key)
    except ConfigError as error:
        meaning = "a broker that knows users does not start with it"
        advice = "bring it back from a backup, or move it and users.json away and make the users anew"
        report.findings.append(Finding(file=USERS_KEY, what=str(error), meaning=meaning, advice=advice))


def _check_deleted(files: Files, root: str, report: Report) -> None:
    path = f"{root}/{DELETED_TOPICS}"
    faults = {each: _deleted_fault(files, each) for each in (path, path + PREVIOUS) if files.exists(each)}
    report.state_files += bool(faults)
    fault, previous = faults.get(path), faults.get(path + PREVIOUS)
    if fault is None and previous is None:
        return
    if fault is not None and path + PREVIOUS in faults and previous is None:
        meaning = "a broker takes the previous generation instead"
        report.findings.append(
            Finding(file=DELETED_TOPICS, what=fault, meaning=meaning, action=RestoreState(path))
        )
        return
    if previous is not None and path in faults and fault is None:
        report.findings.append(_previous_is_damaged(path, DELETED_TOPICS, previous))
        return
    meaning = "topics that were deleted may come back when queues are built again; delete them once more then"
    for each, what in faults.items():
        name = each.removeprefix(f"{root}/")
        report.findings.append(Finding(file=name, what=what or "", meaning=meaning, action=MoveAside(each)))


def _deleted_fault(files: Files, path: str) -> str | None:
    try:
        read_deleted(files.read(path))
    except Corrupt as error:
        return str(error)
    return None


def _topics(files: Files, root: str) -> frozenset[str] | None:
    path = f"{root}/config/topics.json"
    for each in (path, path + PREVIOUS):
        if _fault(files, each) is None:
            return frozenset(fastjson.decode(files.read(each), TopicTable).topic_config_table)
    return None
