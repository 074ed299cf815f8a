"""The tables and their rules, without any request around them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.errors import Refused
from kourou.nameserver import mappings as mappings_module
from kourou.nameserver import routes as module
from kourou.nameserver.routes import Departure, Registration, Routes
from kourou.protocol.bodies import ClusterInfo, DataVersion, QueueData, TopicConfig

CLUSTER = "c"
A, B, C = "10.0.0.1:10911", "10.0.0.2:10911", "10.0.0.3:10911"


def topic(name: str, perm: int = 6, flag: int = 0, queues: int = 4) -> TopicConfig:
    return TopicConfig(
        topic_name=name, perm=perm, topic_sys_flag=flag, read_queue_nums=queues, write_queue_nums=queues
    )


def said(*topics: TopicConfig, **more: Any) -> Registration:
    counter = more.pop("counter", 1)
    state = more.pop("state", 0)
    default: dict[str, Any] = {"cluster": CLUSTER, "name": "a", "id": 0, "address": A}
    return Registration(
        **{**default, **more},
        topics={each.topic_name: each for each in topics},
        version=DataVersion(counter=counter, state_version=state),
    )


class Tables(Routes):
    """Routes that remember which topics they called changed."""

    def __init__(self) -> None:
        self.changed: list[str] = []
        super().__init__(self.changed.append)

    def come(self, *topics: TopicConfig, connection: object = None, now: float = 0.0, **more: Any) -> Any:
        delete_missing = more.pop("delete_missing", False)
        return self.register(said(*topics, **more), connection, now, delete_missing=delete_missing)

    def addresses(self, topic: str, **how: Any) -> dict[str, dict[int, str]] | None:
        route = self.route(topic, **how)
        return None if route is None else {each.broker_name: each.broker_addrs for each in route.broker_datas}

    def perms(self, topic: str) -> dict[str, int]:
        route = self.route(topic)
        assert route is not None
        return {each.broker_name: each.perm for each in route.queue_datas}


@pytest.fixture
def tables() -> Tables:
    return Tables()


def test_a_registered_topic_has_a_route_and_another_has_none(tables: Tables) -> None:
    tables.come(topic("t", queues=8), topic("u"))
    route = tables.route("t")
    assert route is not None
    assert route.queue_datas == [QueueData(broker_name="a", perm=6, read_queue_nums=8, write_queue_nums=8)]
    assert tables.addresses("t") == {"a": {0: A}}
    assert tables.route("v") is None


def test_brokers_of_two_names_share_a_topic(tables: Tables) -> None:
    tables.come(topic("t"), topic("u"))
    tables.come(topic("t"), topic("u"), name="b", address=B)
    assert tables.addresses("t") == {"a": {0: A}, "b": {0: B}}


def test_a_registration_adds_and_replaces_but_does_not_delete(tables: Tables) -> None:
    tables.come(topic("t"), topic("u"))
    tables.come(topic("u", queues=9), topic("v"), counter=2)
    assert sorted(tables.topics()) == ["t", "u", "v"]
    route = tables.route("u")
    assert route is not None
    assert route.queue_datas[0].read_queue_nums == 9


def test_missing_topics_go_when_asked_for(tables: Tables) -> None:
    tables.come(topic("t"), topic("u"))
    tables.come(topic("t"), name="b", address=B)
    tables.come(topic("u"), topic("v"), counter=2, delete_missing=True)
    assert sorted(tables.topics()) == ["t", "u", "v"]
    assert tables.addresses("t") == {"b": {0: B}}


def test_an_unchanged_version_changes_no_queues_but_brings_back_what_is_missing(tables: Tables) -> None:
    tables.come(topic("t"), topic("u"))
    tables.delete_topic("u")
    tables.come(topic("t", queues=9), topic("u", queues=9))
    queues = {name: tables.route(name).queue_datas[0].read_queue_nums for name in ("t", "u")}  # type: ignore[union-attr]
    assert queues == {"t": 4, "u": 9}


def test_only_a_master_brings_topics_in_4x(tables: Tables) -> None:
    tables.come(topic("t"), topic("u"), id=1, address=B, acting_master=None)
    assert tables.route("t") is None
    tables.come(topic("t"), topic("u"))
    assert tables.addresses("t") == {"a": {1: B, 0: A}}


def test_the_first_slave_of_a_5x_group_without_master_brings_topics_read_only_when_it_acts_as_one(
    tables: Tables,
) -> None:
    tables.come(topic("t"), topic("u"), id=2, address=B, acting_master=True)
    assert tables.perms("t") == {"a": 4}
    tables.come(topic("v"), topic("w"), id=3, address=C, acting_master=True)
    assert tables.route("v") is None


def test_a_slave_is_told_its_master(tables: Tables) -> None:
    assert tables.come(topic("t"), topic("u"), ha_address="10.0.0.1:10912").master_address is None
    done = tables.come(id=1, address=B)
    assert (done.master_address, done.ha_address) == (A, "10.0.0.1:10912")


def test_an_address_that_comes_back_with_another_id_leaves_the_old_one(tables: Tables) -> None:
    tables.come(topic("t"), topic("u"))
    tables.come(id=1, address=B)
    tables.unregister([Departure(CLUSTER, "a", 0, A)])
    tables.come(topic("t"), topic("u"), id=0, address=B, counter=2)
    assert tables.addresses("t") == {"a": {0: B}}


def test_a_newcomer_with_an_older_state_does_not_replace_the_holder(tables: Tables) -> None:
    tables.come(topic("t"), topic("u"), state=5)
    done = tables.come(topic("t"), topic("u"), address=B, state=4)
    assert done.ignored
    assert tables.addresses("t") == {"a": {0: A}}
    assert not tables.is_alive(CLUSTER, B)
    assert not tables.come(topic("t"), topic("u"), address=B, state=6).ignored
    assert tables.addresses("t") == {"a": {0: B}}


def test_a_slave_refused_as_master_is_no_slave_either_until_it_registers_again(tables: Tables) -> None:
    tables.come(topic("t"), topic("u"), state=5)
    tables.come(id=1, address=B, state=1)
    tables.come(id=0, address=B, state=1)
    assert tables.addresses("t") == {"a": {0: A}}


def test_a_single_topic_of_an_unknown_broker_is_served_but_its_version_is_not_believed(
    tables: Tables,
) -> None:
    tables.come(topic("new"), counter=7)
    assert tables.addresses("new") == {"a": {0: A}}
    assert tables.version_of(CLUSTER, A) is None
    tables.come(topic("newer"), counter=8)
    assert tables.version_of(CLUSTER, A) is None
    tables.come(topic("new"), topic("newer"), topic("old"), counter=8)
    assert tables.version_of(CLUSTER, A) == DataVersion(counter=8)
    tables.come(topic("newest"), counter=9)
    assert tables.version_of(CLUSTER, A) == DataVersion(counter=9)


def test_a_broker_that_leaves_takes_its_queues_and_the_last_one_the_topic(tables: Tables) -> None:
    tables.come(topic("t"), topic("u"))
    tables.come(topic("t"), topic("v"), name="b", address=B)
    tables.unregister([Departure(CLUSTER, "a", 0, A)])
    assert sorted(tables.topics()) == ["t", "v"]
    assert tables.addresses("t") == {"b": {0: B}}
    tables.unregister([Departure(CLUSTER, "b", 0, B)])
    assert tables.topics() == []
    assert tables.cluster_info().cluster_addr_table == {}
    assert tables.cluster_info().broker_addr_table == {}
    assert tables.broker_count == 0


def test_a_slave_keeps_the_topics_when_its_master_leaves(tables: Tables) -> None:
    tables.come(topic("t"), topic("u"))
    tables.come(id=1, address=B)
    tables.unregister([Departure(CLUSTER, "a", 0, A)])
    assert tables.addresses("t") == {"a": {1: B}}
    assert tables.perms("t") == {"a": 6}


def test_many_leave_at_once(tables: Tables) -> None:
    tables.come(topic("t"), topic("u"))
    tables.come(id=1, address=B)
    tables.come(topic("t"), topic("u"), name="b", address=C)
    tables.unregister([Departure(CLUSTER, "a", 0, A), Departure(CLUSTER, "a", 1, B)])
    assert tables.addresses("t") == {"b": {0: C}}


def test_whoever_is_not_there_leaves_without_harm(tables: Tables) -> None:
    tables.come(topic("t"), topic("u"))
    tables.unregister([Departure(CLUSTER, "a", 0, B), Departure("x", "y", 3, "z")])
    assert tables.addresses("t") == {"a": {0: A}}


def test_an_acting_master_shows_as_master_of_read_only_queues(tables: Tables) -> None:
    tables.come(topic("t"), topic("u"), acting_master=True)
    tables.come(id=1, address=B, acting_master=True)
    tables.come(id=2, address=C, acting_master=True)
    tables.unregister([Departure(CLUSTER, "a", 0, A)])
    assert tables.perms("t") == {"a": 4}
    assert tables.addresses("t") == {"a": {1: B, 2: C}}
    assert tables.addresses("t", acting_master=True) == {"a": {0: B, 2: C}}


def test_no_acting_master_is_shown_where_brokers_look_for_each_other(tables: Tables) -> None:
    name = "rmq_sys_SYNC_BROKER_MEMBER_a"
    tables.come(topic(name, perm=4), topic("t"), id=1, address=B, acting_master=True)
    assert tables.addresses(name, acting_master=True) == {"a": {1: B}}
    assert tables.addresses("t", acting_master=True) == {"a": {0: B}}


def test_the_lowest_id_changes_when_a_lower_one_comes(tables: Tables) -> None:
    tables.come(id=2, address=C)
    assert tables.come(id=3, address=B).min_id_change is None
    change = tables.come(id=0, address=A, ha_address="10.0.0.1:10912").min_id_change
    assert (change.id, change.address, change.offline_address) == (0, A, None)
    assert change.ha_address == "10.0.0.1:10912"
    assert set(change.recipients) == {B, C}


def test_the_lowest_id_changes_when_it_leaves(tables: Tables) -> None:
    for each, address in enumerate((A, B, C)):
        tables.come(id=each, address=address, acting_master=True)
    (change,) = tables.unregister([Departure(CLUSTER, "a", 0, A)])
    assert (change.id, change.address, change.offline_address) == (1, B, A)
    assert set(change.recipients) == {B, C}
    assert tables.unregister([Departure(CLUSTER, "a", 2, C)]) == []


def test_brokers_expire_by_their_own_patience(tables: Tables) -> None:
    tables.come(topic("t"), topic("u"), now=0.0, connection="x")
    tables.come(topic("t"), topic("u"), name="b", address=B, now=0.0, expiry_ms=10_000, connection="y")
    assert tables.expired(10.0) == []
    assert tables.expired(10.1) == [(Departure(CLUSTER, "b", 0, B), "y")]
    tables.seen(CLUSTER, B, 10.0)
    assert tables.expired(20.0) == []
    assert [gone.name for gone, _ in tables.expired(120.1)] == ["a", "b"]


def test_a_connection_stands_for_the_brokers_that_registered_over_it_last(tables: Tables) -> None:
    old, new = object(), object()
    tables.come(topic("t"), topic("u"), connection=old)
    tables.come(id=1, address=B, connection=old)
    tables.come(topic("t"), topic("u"), connection=new)
    assert tables.connected_by(old) == [Departure(CLUSTER, "a", 1, B)]
    assert tables.connected_by(new) == [Departure(CLUSTER, "a", 0, A)]


def test_write_permission_is_wiped_and_given_back_and_the_next_changed_registration_decides(
    tables: Tables,
) -> None:
    tables.come(topic("t"), topic("u", perm=7))
    assert tables.wipe_write_permission("a") == 2
    assert (tables.perms("t"), tables.perms("u")) == ({"a": 4}, {"a": 5})
    tables.come(topic("t"), topic("u", perm=7))
    assert tables.perms("t") == {"a": 4}
    assert tables.add_write_permission("a") == 2
    assert tables.perms("u") == {"a": 6}
    tables.come(topic("t"), topic("u", perm=7), counter=2)
    assert tables.perms("u") == {"a": 7}
    assert tables.wipe_write_permission("nobody") == 0


def test_a_topic_is_deleted_from_one_cluster_or_from_all(tables: Tables) -> None:
    tables.come(topic("t"), topic("u"))
    tables.come(topic("t"), topic("u"), cluster="d", name="b", address=B)
    assert tables.delete_topic("t", "d") == 1
    assert tables.addresses("t") == {"a": {0: A}}
    assert tables.delete_topic("u") == 2
    assert tables.delete_topic("u") == 0
    assert tables.topics() == ["t"]


def test_single_queues_are_put_only_on_brokers_that_are_known(tables: Tables) -> None:
    tables.come(topic("t"), topic("u"))
    queues = QueueData(broker_name="a", perm=6, read_queue_nums=1, write_queue_nums=1)
    strange = QueueData(broker_name="z", perm=6, read_queue_nums=1, write_queue_nums=1)
    assert tables.set_queues("new", [queues, strange]) == "z"
    assert tables.route("new") is None
    assert tables.set_queues("new", [queues]) is None
    assert tables.addresses("new") == {"a": {0: A}}


def test_topics_are_listed_by_cluster_system_and_unit(tables: Tables) -> None:
    tables.come(topic("plain"), topic("unit", flag=1), topic("both", flag=3), topic("sub", flag=2))
    tables.come(topic("other"), topic("plain"), cluster="d", name="b", address=B)
    assert sorted(tables.topics_of_cluster("d")) == ["other", "plain"]
    assert tables.topics_of_cluster("nowhere") == []
    assert tables.system_topics() == (["c", "a", "d", "b"], A)
    assert sorted(tables.unit_topics()) == ["both", "unit"]
    assert sorted(tables.unit_subscribed_topics()) == ["both", "sub"]
    assert tables.unit_subscribed_plain_topics() == ["sub"]


def test_filter_servers_come_and_go_with_their_broker(tables: Tables) -> None:
    tables.come(topic("t"), topic("u"), filter_servers=["10.0.0.1:7000"])
    assert tables.route("t").filter_server_table == {A: ["10.0.0.1:7000"]}  # type: ignore[union-attr]
    tables.come(topic("t"), topic("u"))
    assert tables.route("t").filter_server_table == {}  # type: ignore[union-attr]


def test_static_topics_pass_through(tables: Tables) -> None:
    mapping = {"bname": "a", "topic": "t", "currIdMap": {"0": 0}}
    tables.come(topic("t"), topic("u"), mappings={"t": mapping})
    assert tables.route("t").topic_queue_mapping_by_broker == {"a": mapping}  # type: ignore[union-attr]
    assert not tables.route("u").topic_queue_mapping_by_broker  # type: ignore[union-attr]
    tables.unregister([Departure(CLUSTER, "a", 0, A)])
    tables.come(topic("t"), topic("u"))
    assert not tables.route("t").topic_queue_mapping_by_broker  # type: ignore[union-attr]


def test_a_static_topic_is_filed_under_the_broker_that_registered_it(tables: Tables) -> None:
    tables.come(topic("t"), mappings={"t": {"bname": "somebody"}, "u": {}})
    tables.come(topic("t"), topic("u"), name="b", address=B)
    assert tables.route("t").topic_queue_mapping_by_broker == {"a": {"bname": "somebody"}}  # type: ignore[union-attr]
    assert tables.route("u").topic_queue_mapping_by_broker == {"a": {}}  # type: ignore[union-attr]
    tables.changed.clear()
    tables.unregister([Departure(CLUSTER, "a", 0, A)])
    assert {"t", "u"} <= set(tables.changed)
    assert not tables.route("t").topic_queue_mapping_by_broker  # type: ignore[union-attr]
    assert not tables.route("u").topic_queue_mapping_by_broker  # type: ignore[union-attr]


def test_a_deleted_topic_takes_its_mapping_along(tables: Tables) -> None:
    tables.come(topic("t"), mappings={"t": {}, "u": {}})
    assert tables.delete_topic("u") == 1
    assert tables.delete_topic("t") == 1
    tables.come(topic("t"), topic("u"), counter=2)
    assert not tables.route("t").topic_queue_mapping_by_broker  # type: ignore[union-attr]
    assert not tables.route("u").topic_queue_mapping_by_broker  # type: ignore[union-attr]


def test_one_broker_may_keep_only_so_much_of_static_topics(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mappings_module, "BROKER_BYTES_MAX", 60)
    tables.come(mappings={"t": {"scope": "x" * 40}})
    with pytest.raises(Refused, match=r"static topics take 1.. bytes: at most 60 are kept of one broker"):
        tables.come(topic("u"), topic("v"), mappings={"u": {"scope": "x" * 40}}, counter=2)
    assert tables.topics() == []
    tables.come(topic("u"), topic("v"), mappings={"t": {"scope": "y" * 40}}, counter=2)
    tables.come(topic("u"), topic("v"), name="b", address=B, mappings={"t": {"scope": "x" * 40}})


def test_all_static_topics_together_have_a_most(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mappings_module, "ALL_BYTES_MAX", 60)
    tables.come(mappings={"t": {"scope": "x" * 40}})
    with pytest.raises(Refused, match=r"static topics of all brokers would take 1.. bytes: the most is 60"):
        tables.come(name="b", address=B, mappings={"t": {"scope": "x" * 40}})
    assert tables.members("b") == {}
    tables.unregister([Departure(CLUSTER, "a", 0, A)])
    tables.come(name="b", address=B, mappings={"t": {"scope": "x" * 40}})


def test_one_address_has_only_so_many_names(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "NAMES_OF_ADDRESS_MAX", 2)
    tables.come(name="a")
    tables.come(name="b")
    with pytest.raises(Refused, match=f"'c' failed: {A} has 2 broker names already"):
        tables.come(name="c")
    assert tables.members("c") == {}
    tables.come(name="b", counter=2)
    tables.unregister([Departure(CLUSTER, "a", 0, A)])
    tables.come(name="c")


def test_broker_names_have_a_most_even_when_their_addresses_moved_on(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BROKERS_MAX", 2)
    tables.come(name="a")
    tables.come(name="b")
    with pytest.raises(Refused, match="2 broker names are here"):
        tables.come(name="c")
    tables.come(name="a", address=B, id=1)
    with pytest.raises(Refused, match="2 brokers are here"):
        tables.come(name="a", address=C, id=2)
    assert tables.members("a") == {0: A, 1: B}


@pytest.mark.parametrize(
    ("change", "changed"),
    [
        (lambda t: t.come(topic("t"), topic("u")), set()),
        (lambda t: t.come(topic("t"), topic("u"), counter=2), set()),
        (lambda t: t.come(topic("t", queues=9), topic("u"), counter=2), {"t"}),
        (lambda t: t.come(id=1, address=B), {"t", "u"}),
        (lambda t: t.come(topic("t"), topic("u"), address=C), {"t", "u"}),
        (lambda t: t.come(topic("t"), topic("u"), zone="z1"), {"t", "u"}),
        (lambda t: t.come(topic("t"), topic("u"), acting_master=True), {"t", "u"}),
        (lambda t: t.come(topic("t"), topic("u"), filter_servers=["h:1"]), {"t", "u"}),
        (lambda t: t.come(topic("t"), topic("u"), name="b", address=B), {"t", "u"}),
        (lambda t: t.come(topic("v"), topic("w"), name="b", address=B), {"v", "w"}),
        (lambda t: t.unregister([Departure(CLUSTER, "a", 0, A)]), {"t", "u"}),
        (lambda t: t.wipe_write_permission("a"), {"t", "u"}),
        (lambda t: t.add_write_permission("a"), set()),
        (lambda t: t.delete_topic("t"), {"t"}),
        (lambda t: t.seen(CLUSTER, A, 9.0), set()),
    ],
)
def test_exactly_the_topics_whose_route_looks_different_are_called_changed(
    tables: Tables, change: Any, changed: set[str]
) -> None:
    tables.come(topic("t"), topic("u"))
    before = {name: tables.route(name) for name in "tuvw"}
    tables.changed.clear()
    change(tables)
    assert set(tables.changed) == changed
    different = {name for name, route in before.items() if tables.route(name) != route}
    assert different <= changed


NAMES = st.sampled_from(["a", "b"])
IDS = st.sampled_from([0, 1, 2])
ADDRESSES = st.sampled_from([A, B, C])
TOPICS = st.lists(st.sampled_from(["t", "u", "v"]), max_size=3, unique=True)
STEPS = st.one_of(
    st.tuples(
        st.just("come"),
        st.fixed_dictionaries(
            {
                "name": NAMES,
                "id": IDS,
                "address": ADDRESSES,
                "counter": st.integers(1, 2),
                "state": st.integers(0, 1),
                "acting_master": st.sampled_from([None, False, True]),
                "delete_missing": st.booleans(),
            }
        ),
        TOPICS,
    ),
    st.tuples(st.just("leave"), NAMES, IDS, ADDRESSES),
    st.tuples(st.just("wipe"), NAMES),
    st.tuples(st.just("add"), NAMES),
    st.tuples(st.just("delete"), st.sampled_from(["t", "u", "v"])),
)


@given(st.lists(STEPS, max_size=30))
def test_whatever_happens_the_tables_agree_and_no_changed_route_goes_unsaid(steps: list[Any]) -> None:
    tables = Tables()
    for step in steps:
        before = {name: tables.route(name) for name in "tuv"}
        tables.changed.clear()
        match step:
            case ("come", more, topics):
                tables.come(*map(topic, topics), **more)
            case ("leave", name, id, address):
                tables.unregister([Departure(CLUSTER, name, id, address)])
            case ("wipe", name):
                tables.wipe_write_permission(name)
            case ("add", name):
                tables.add_write_permission(name)
            case ("delete", name):
                tables.delete_topic(name)
        after = {name: tables.route(name) for name in "tuv"}
        assert {name for name in after if after[name] != before[name]} <= set(tables.changed)
        check_agreement(tables)
    everybody = [gone for gone, _ in tables.expired(1e9)]
    tables.unregister(everybody)
    assert tables.broker_count == 0
    assert tables.topics() == []
    assert tables.cluster_info() == ClusterInfo()


def check_agreement(tables: Tables) -> None:
    info = tables.cluster_info()
    for name in tables.topics():
        route = tables.route(name)
        assert route is not None
        assert route.queue_datas, "a topic without queues is no topic"
        assert {each.broker_name for each in route.queue_datas} <= set(info.broker_addr_table)
    for name, broker in info.broker_addr_table.items():
        addresses = list(broker.broker_addrs.values())
        assert addresses, "a broker without an address is gone"
        assert len(set(addresses)) == len(addresses), "one address has one id"
        assert any(name in names for names in info.cluster_addr_table.values())
