"""The directory: what counts at once, what is written, and that its followers miss nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.vmq.clustering.fakes import FakeNode
from tests.vmq.support import House, stored_house
from vmq.clustering.directory import Directory
from vmq.clustering.records import SUBSCRIBERS, Record, decode, encode, encode_key
from vmq.registry import Subscriber

IDS = ("c", "d")
NOW = 1000


class Setting:
    """A directory of node `a` with a house, and a follower that checks that nothing is missing."""

    def __init__(self, house: House) -> None:
        self.node = FakeNode("a")
        self.house = house
        self.soon: list[Callable[[], None]] = []
        self.now = NOW
        #: What followers were told last, by client id.
        self.seen: dict[str, Record | None] = {}
        self.directory = Directory(
            cast("Any", self.node), self.follow, lambda: self.now, self.soon.append
        )
        self.owners: list[tuple[str, str | None, str | None]] = []
        self.directory.on_owner(self.on_owner)
        self.house.core.on_subscriber = self.directory.on_subscriber

    def follow(
        self, mountpoint: str, client_id: str, before: Record | None, after: Record | None
    ) -> None:
        assert mountpoint == ""
        assert self.seen.get(client_id) == before
        self.seen[client_id] = after

    def on_owner(
        self, mountpoint: str, client_id: str, before: Record | None, after: Record | None
    ) -> None:
        assert self.seen[client_id] == after, "told before the routes"
        assert self.directory.record(mountpoint, client_id) == after
        was, now = (None if each is None else each.node for each in (before, after))
        self.owners.append((client_id, was, now))

    def session(self, client_id: str, clean: bool = True) -> Subscriber:
        registry = self.house.registry
        present = registry.subscribers.get(client_id)
        if present is not None:
            registry.end_session(present)
        made = registry.create(client_id, clean)
        self.directory.claim(registry, made)
        return made

    def subscribe(self, client_id: str, topic_filter: str, qos: int) -> None:
        registry = self.house.registry
        registry.subscribe(registry.subscribers[client_id], topic_filter, qos)

    def stored(self, client_id: str) -> Record | None:
        raw = self.node.get(SUBSCRIBERS, encode_key("", client_id))
        return None if raw is None else decode(raw)

    def hear(self, client_id: str, record: Record | None) -> None:
        raw = None if record is None else encode(record)
        self.node.hear((SUBSCRIBERS, encode_key("", client_id), raw))


@pytest.fixture
def setting() -> Setting:
    return Setting(House())


@pytest.fixture
def durable(tmp_path: Path) -> Iterator[Setting]:
    """The same with a store."""
    with stored_house(tmp_path) as house:
        yield Setting(house)


def test_a_session_counts_at_once_and_is_written_once_a_pass(setting: Setting) -> None:
    setting.session("c")
    setting.subscribe("c", "t/#", 1)
    setting.subscribe("c", "u", 2)
    record = Record("a", NOW, True, {"t/#": 1, "u": 2})
    assert setting.directory.record("", "c") == record
    assert setting.stored("c") is None
    [flush] = setting.soon
    flush()
    assert setting.stored("c") == record
    assert len(setting.node.written) == 1


def test_what_ended_in_the_same_pass_is_never_written(setting: Setting) -> None:
    one = setting.session("c")
    setting.house.registry.end_session(one)
    setting.directory.flush()
    assert setting.directory.record("", "c") is None
    assert [each[2] for each in setting.node.written] == [None]
    assert setting.owners == [("c", None, "a"), ("c", "a", None)]


def test_a_record_that_did_not_change_is_not_written_again(setting: Setting) -> None:
    setting.session("c")
    setting.subscribe("c", "t", 1)
    setting.directory.flush()
    setting.subscribe("c", "t", 1)
    setting.directory.flush()
    assert len(setting.node.written) == 1


def test_who_takes_over_is_later_than_the_owner_whatever_its_clock_says(durable: Setting) -> None:
    setting = durable
    setting.hear("c", Record("b", NOW + 500, False, {"t": 1}))
    setting.session("c")
    assert setting.directory.record("", "c") == Record("a", NOW + 501, True, {})
    # So does who begins anew in the same pass.
    setting.session("c", clean=False)
    assert setting.directory.record("", "c") == Record("a", NOW + 501, False, {})
    setting.directory.flush()
    setting.session("c")
    assert setting.directory.record("", "c") == Record("a", NOW + 502, True, {})


def test_a_newer_owner_elsewhere_overrules_what_waits_here(setting: Setting) -> None:
    setting.session("c")
    theirs = Record("b", NOW + 1, True, {})
    setting.hear("c", theirs)
    assert setting.directory.record("", "c") == theirs
    setting.subscribe("c", "t", 1)
    setting.directory.flush()
    assert setting.stored("c") == theirs
    assert setting.owners == [("c", None, "a"), ("c", "a", "b")]


def test_an_older_one_does_not(setting: Setting) -> None:
    setting.session("c")
    setting.hear("c", Record("b", NOW - 1, True, {"t": 1}))
    assert setting.directory.record("", "c") == Record("a", NOW, True, {})
    setting.directory.flush()
    assert setting.stored("c") == Record("a", NOW, True, {})
    assert setting.owners == [("c", None, "a")]


def test_nobody_deletes_or_gives_the_record_of_another(setting: Setting) -> None:
    theirs = Record("b", NOW, False, {"t": 1})
    setting.hear("c", theirs)
    setting.directory.forget("", "c")
    setting.directory.give("", "c", "x")
    setting.directory.flush()
    assert setting.stored("c") == theirs
    setting.directory.forget("", "unknown")
    setting.directory.give("", "unknown", "x")
    assert setting.directory.record("", "unknown") is None


def test_the_owner_gives_a_session_away(durable: Setting) -> None:
    setting = durable
    setting.session("c", clean=False)
    setting.subscribe("c", "t", 1)
    setting.directory.give("", "c", "b")
    assert setting.directory.record("", "c") == Record("b", NOW + 1, False, {"t": 1})
    setting.directory.flush()
    assert setting.stored("c") == Record("b", NOW + 1, False, {"t": 1})


def test_a_session_whose_record_went_has_it_again_with_its_next_subscription(
    setting: Setting,
) -> None:
    setting.session("c")
    setting.directory.flush()
    setting.hear("c", None)
    setting.subscribe("c", "t", 1)
    setting.directory.flush()
    assert setting.stored("c") == Record("a", NOW, True, {"t": 1})


def test_callbacks_see_all_of_a_step_and_may_write(setting: Setting) -> None:
    """Who hears of the first change of a step already sees the second, and may overrule it."""
    setting.hear("c", Record("b", 1, True, {"t": 1}))
    setting.hear("d", Record("b", 1, True, {"t": 1}))

    def answer(_: str, client_id: str, before: Record | None, after: Record | None) -> None:
        if client_id == "c" and after is not None and after.since == 2:
            setting.session("d")

    setting.directory.on_owner(answer)
    setting.node.hear(
        *(
            (SUBSCRIBERS, encode_key("", each), encode(Record("b", 2, True, {"u": 1})))
            for each in IDS
        )
    )
    assert setting.seen["d"] == Record("a", NOW, True, {})


def test_a_callback_that_fails_harms_nobody(
    setting: Setting, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("broken")

    setting.directory.on_owner(fails)
    setting.session("c")
    assert setting.directory.record("", "c") is not None
    assert "a callback for the owner of ('', 'c') failed" in caplog.text


def test_what_is_no_record_counts_as_nothing(
    setting: Setting, caplog: pytest.LogCaptureFixture
) -> None:
    setting.node.hear((SUBSCRIBERS, encode_key("", "c"), b"\xff"))
    setting.node.hear((SUBSCRIBERS, b"no key", encode(Record("b", 1, True, {}))))
    assert setting.directory.record("", "c") is None
    assert list(setting.directory.records()) == []
    assert "no record of a subscriber" in caplog.text
    assert "is no subscriber" in caplog.text


def test_a_node_that_stopped_writes_nothing_and_raises_nothing(setting: Setting) -> None:
    setting.session("c")
    setting.node.is_running = False
    setting.directory.flush()
    assert setting.node.written == []
    assert setting.directory.record("", "c") is None


RECORDS = st.none() | st.builds(
    Record,
    st.sampled_from(["a", "b"]),
    st.integers(NOW - 2, NOW + 4),
    st.booleans(),
    st.dictionaries(st.sampled_from(["t", "u/#"]), st.integers(0, 2)),
)
CHANGES = st.lists(st.tuples(st.sampled_from(IDS), RECORDS), min_size=1, max_size=3)
ACTS = st.one_of(
    st.tuples(st.just("connect"), st.sampled_from(IDS), st.booleans()),
    st.tuples(st.just("subscribe"), st.sampled_from(IDS), st.integers(0, 2)),
    st.tuples(st.just("end"), st.sampled_from(IDS), st.none()),
    st.tuples(st.just("give"), st.sampled_from(IDS), st.none()),
    st.tuples(st.just("hear"), st.none(), CHANGES),
    st.tuples(st.just("flush"), st.none(), st.none()),
)


@given(st.lists(ACTS, max_size=25))
def test_whatever_happens_followers_hear_of_every_step_between_two_records(acts: list[Any]) -> None:
    """`Setting.follow` asserts it: the routes are kept by what records were and are."""
    setting = Setting(House())
    registry = setting.house.registry
    for what, client_id, value in acts:
        setting.now += 1
        present = registry.subscribers.get(client_id)
        if what == "connect":
            setting.session(client_id, value)
        elif what == "hear":
            setting.node.hear(
                *(
                    (SUBSCRIBERS, encode_key("", each), None if found is None else encode(found))
                    for each, found in value
                )
            )
        elif what == "flush":
            setting.directory.flush()
        elif what == "give":
            setting.directory.give("", client_id, "b")
        elif present is not None and what == "subscribe":
            registry.subscribe(present, "t", value)
        elif present is not None and what == "end":
            registry.end_session(present)
        for each in IDS:
            record = setting.directory.record("", each)
            assert setting.seen.get(each) == record
    setting.directory.flush()
    for each in IDS:
        assert setting.stored(each) == setting.directory.record("", each)
