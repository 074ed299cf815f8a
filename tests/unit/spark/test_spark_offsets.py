"""Offsets as Spark keeps them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.errors import ConfigError
from kourou.spark.offsets import Queue, from_json, to_json

tables = st.dictionaries(
    st.builds(Queue, st.text(max_size=4), st.text(max_size=4), st.integers(0, 70_000)),
    st.integers(0, 2**62),
    max_size=8,
)


@given(tables, st.randoms())
def test_one_table_has_one_text(table: dict[Queue, int], chance: object) -> None:
    items = list(table.items())
    chance.shuffle(items)  # type: ignore[attr-defined]
    assert json.dumps(to_json(dict(items))) == json.dumps(to_json(table))
    assert from_json(json.loads(json.dumps(to_json(table)))) == table


@pytest.mark.parametrize(
    "document",
    [{"t": 1}, {"t": {"b": [1]}}, {"t": {"b": {"x": 1}}}, {"t": {"b": {"0": -1}}}, {"t": {"b": {"0": "1"}}}],
)
def test_a_checkpoint_of_something_else_is_refused(document: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="checkpoint"):
        from_json(document)
