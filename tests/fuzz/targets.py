"""Every target, by name."""

from __future__ import annotations

from tests.fuzz.file_targets import FILE_TARGETS
from tests.fuzz.native_targets import NATIVE_TARGETS
from tests.fuzz.server_targets import SERVER_TARGETS
from tests.fuzz.wire_targets import WIRE_TARGETS

TARGETS = {target.name: target for target in (*WIRE_TARGETS, *FILE_TARGETS, *SERVER_TARGETS, *NATIVE_TARGETS)}
