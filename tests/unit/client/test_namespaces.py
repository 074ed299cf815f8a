from __future__ import annotations

import pytest

from kourou.client.namespaces import with_namespace, without_namespace


@pytest.mark.parametrize(
    ("name", "wrapped"),
    [
        ("orders", "shop%orders"),
        ("shop%orders", "shop%orders"),
        ("shopping", "shop%shopping"),
        ("%RETRY%billing", "%RETRY%shop%billing"),
        ("%DLQ%billing", "%DLQ%shop%billing"),
        ("%RETRY%shop%billing", "%RETRY%shop%billing"),
    ],
)
def test_names_are_wrapped_once_and_unwrapped(name: str, wrapped: str) -> None:
    assert with_namespace("shop", name) == wrapped
    assert without_namespace("shop", wrapped) == without_namespace("shop", name)
    assert with_namespace(None, name) == name
    assert without_namespace(None, wrapped) == wrapped


@pytest.mark.parametrize("name", ["TBW102", "rmq_sys_wheel_timer", "CID_RMQ_SYS_TRANS", "TOOLS_CONSUMER"])
def test_the_system_s_own_names_are_in_no_namespace(name: str) -> None:
    assert with_namespace("shop", name) == name


def test_a_name_of_another_namespace_is_left_alone() -> None:
    assert without_namespace("shop", "store%orders") == "store%orders"
