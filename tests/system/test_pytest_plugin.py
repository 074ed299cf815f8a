"""The pytest plugin, used as the tests of an application would use it: in test runs of their own."""

from __future__ import annotations

import pytest

from kourou import Message, Producer  # loaded once: pytester forgets what is loaded while it runs

__all__ = ["Message", "Producer"]

pytest_plugins = ["pytester"]


def test_an_application_is_tested_with_a_broker_in_memory(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import os

        import kourou

        def test_a_message_is_published(kourou_broker, kourou_topic, kourou_producer, assert_published):
            kourou_producer.send(kourou.Message(kourou_topic, b"espresso", tags="new", keys="1 2"))
            kourou_producer.send(kourou.Message(kourou_topic, b"latte", tags="new"))
            (found,) = assert_published(kourou_topic, b"espresso", tags="new", keys="2", count=1)
            assert found.body == b"espresso"
            assert len(assert_published(kourou_topic, tags="new", count=2)) == 2
            assert_published(kourou_topic, lambda body: body.startswith(b"lat"))
            assert_published(kourou_topic, "latte")
            assert_published(kourou_topic, b"tea", count=0)

        def test_a_topic_is_the_tests_own_and_there_before_anything_is_sent(kourou_topic, kourou_messages):
            assert kourou_topic.startswith("test_a_topic_is_the_tests_own")
            assert kourou_messages(kourou_topic) == []

        def test_the_application_finds_it_by_itself(kourou_environment, kourou_topic, kourou_messages):
            assert os.environ["NAMESRV_ADDR"] == kourou_environment
            with kourou.Producer("shop") as producer:
                for number in range(10):
                    producer.send(kourou.Message(kourou_topic, b"%d" % number))
            bodies = [message.body for message in kourou_messages(kourou_topic)]
            assert bodies == [b"%d" % number for number in range(10)]

        def test_a_consumer_may_come_first(kourou_broker, kourou_topic, kourou_producer):
            broker = kourou_broker.name_server
            with kourou.Consumer("billing", kourou_topic, broker) as messages:
                kourou_producer.send(kourou.Message(kourou_topic, b"for you"))
                message = messages.receive(timeout=10)
                assert message.body == b"for you"
                message.done()
        """
    )
    pytester.runpytest().assert_outcomes(passed=4)


def test_what_is_published_a_moment_later_is_waited_for(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import kourou

        def test_later(kourou_producer, assert_published):
            kourou_producer.send(kourou.Message("made-by-sending", b"tick"), delay=1)
            assert_published("made-by-sending", b"tick")
        """
    )
    pytester.runpytest().assert_outcomes(passed=1)


def test_a_message_that_does_not_come_is_told_with_those_that_did(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import kourou

        def test_another_one(kourou_topic, kourou_producer, assert_published):
            kourou_producer.send(kourou.Message(kourou_topic, b"espresso", tags="new"))
            assert_published(kourou_topic, b"latte", tags="new", within=0.1)

        def test_too_many(kourou_topic, kourou_producer, assert_published):
            for _ in range(2):
                kourou_producer.send(kourou.Message(kourou_topic, b"espresso"))
            assert_published(kourou_topic, b"espresso", count=1)

        def test_none_at_all(assert_published):
            assert_published("nobody-sends-here", within=0.1)
        """
    )
    result = pytester.runpytest()
    result.assert_outcomes(failed=3)
    result.stdout.fnmatch_lines(
        [
            "*expected at least one message in topic * with body=b'latte', tags='new' within 0.1 s, found 0.",
            "*In topic 'test_another_one-*' (1):",
            "*b'espresso' tags='new' keys=None",
            "*expected 1 message in topic * with body=b'espresso' within 5 s, found 2.",
            "*There is nothing in topic 'nobody-sends-here'.",
        ]
    )


def test_settings_and_lifetime_are_the_projects_choice(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nkourou_broker_scope = function")
    pytester.makeconftest(
        """
        import pytest

        @pytest.fixture(scope="session")
        def kourou_broker_settings(tmp_path_factory):
            return {"data": tmp_path_factory.mktemp("broker"), "default_topic_queues": 2}
        """
    )
    pytester.makepyfile(
        """
        import pathlib

        import pytest

        seen = []

        @pytest.mark.parametrize("time", [1, 2])
        def test_each_has_its_own(time, kourou_broker, kourou_producer):
            assert kourou_broker not in seen
            seen.append(kourou_broker)
            assert len(kourou_producer.queues("orders")) == 2
            assert (pathlib.Path(kourou_broker.data) / "store").is_dir()
        """
    )
    pytester.runpytest().assert_outcomes(passed=2)


def test_a_lifetime_that_does_not_exist_is_named(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nkourou_broker_scope = for-ever")
    pytester.makepyfile("def test_it(kourou_broker): ...")
    result = pytester.runpytest()
    result.stdout.fnmatch_lines_random(["*kourou_broker_scope is 'for-ever'; it is one of session, *"])
    assert result.ret != 0


def test_a_project_that_asks_for_no_broker_pays_for_none(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import sys

        def test_nothing_of_it_is_imported():
            assert "kourou.local.pytest_plugin" in sys.modules
            heavy = ("kourou.broker", "kourou.store", "kourou.nameserver", "kourou.client")
            assert not [name for name in sys.modules if name.startswith(heavy)]
        """
    )
    pytester.runpytest_subprocess().assert_outcomes(passed=1)
