from __future__ import annotations

from kourou.access.signatures import signature


def test_a_signature_is_the_original_s() -> None:
    # Apache's AclSignerTest: calSignature("RocketMQ", "12345678")
    assert signature({}, b"RocketMQ", "12345678") == "IUc8rrO/0gDch8CjObLQsW2rsiA="
    assert signature({"a": "RocketMQ"}, b"", "12345678") == "IUc8rrO/0gDch8CjObLQsW2rsiA="


def test_values_are_signed_in_the_order_of_their_names_upper_case_first_then_the_body() -> None:
    fields = {"topic": "ket", "AccessKey": "Ro", "bname": "c"}
    assert signature(fields, b"MQ", "12345678") == "IUc8rrO/0gDch8CjObLQsW2rsiA="


def test_the_signature_itself_is_not_signed() -> None:
    assert signature({"a": "RocketMQ", "Signature": "old"}, b"", "12345678") == signature(
        {"a": "RocketMQ"}, b"", "12345678"
    )


def test_names_are_ordered_by_utf_16_units_as_java_does() -> None:
    assert signature({"\ue000": "2", "\U00010000": "1"}, b"", "k") == signature({"a": "12"}, b"", "k")
