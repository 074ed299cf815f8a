"""`python -m tests.interop.record_mqadmin`: what the real admin tool prints about an Apache cluster, kept.

The tests of `kourou mqadmin` compare with it. Addresses, ids and times are kept as they were; those who
compare mask them.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from tests import mqadmin_story
from tests.interop import apache

RECORDED = Path(__file__).resolve().parents[1] / "wire" / "recorded" / "mqadmin-5.3.3.json"
VERSION = "5.3.3"


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="kourou-record-") as name:
        folder = Path(name)
        with (
            apache.name_server(VERSION, folder) as names,
            apache.broker(VERSION, folder, names.address, name="broker-a", traceTopicEnable="true") as broker,
            mqadmin_story.cast(names.address, broker.address, "broker-a", folder / "out") as cast,
        ):
            verbs = [verb.format(**cast) for verb in mqadmin_story.VERBS]
            said = apache.mqadmin(
                VERSION, folder, *(f"{verb} -n {names.address}" for verb in verbs), timeout=600
            )
    story = [
        {"verb": template, "said": text.replace(name, "/story")}
        for template, text in zip(mqadmin_story.VERBS, said, strict=True)
    ]
    RECORDED.write_text(json.dumps(story, indent=1) + "\n")
    print(f"{len(story)} verbs are in {RECORDED}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
