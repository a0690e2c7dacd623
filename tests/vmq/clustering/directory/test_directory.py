"""The directory: what counts at once, what is written, and that its followers miss nothing."""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.present import present
from tests.vmq.clustering.fakes import FakeNode
from tests.vmq.support import House, stored_house
from vmq.clustering.directory.directory import Directory
from vmq.clustering.directory.pieces import PIECE
from vmq.clustering.directory.records import (
    SUBSCRIBERS,
    Record,
    decode,
    encode,
    encode_key,
    encode_piece,
)
from vmq.core.subscriber import Subscriber

IDS = ("c", "d")
NOW = 1000

Wish = tuple[str, int, str, bool, bool]


def wishes(record: Record | None) -> list[Wish]:
    if record is None:
        return []
    kind = (record.node, record.clean, record.online)
    return [(name, qos, *kind) for name, qos in record.subscriptions.items()]


class Setting:
    """A directory of node `a` with a house, and a follower that checks that nothing is missing."""

    def __init__(self, house: House) -> None:
        self.node = FakeNode("a")
        self.house = house
        self.soon: list[Callable[[], None]] = []
        self.now = NOW
        #: What the routes follow, by client id: how often (filter, QoS, node, clean, online).
        self.seen: dict[str, Counter[Wish]] = {}
        self.directory = Directory(
            cast("Any", self.node), self.follow, lambda: self.now, self.soon.append
        )
        self.owners: list[tuple[str, str | None, str | None]] = []
        #: What is wrong with what callbacks were told: what they raise themselves is logged alone.
        self.flaws: list[str] = []
        self.directory.on_owner(self.on_owner)
        self.house.core.sessions = self.directory

    def follow(
        self, mountpoint: str, client_id: str, before: Record | None, after: Record | None
    ) -> None:
        assert mountpoint == ""
        seen = self.seen.setdefault(client_id, Counter())
        seen.subtract(wishes(before))
        assert min(seen.values(), default=0) >= 0, "told of the end of what was not there"
        seen.update(wishes(after))
        self.seen[client_id] = +seen

    def on_owner(
        self, mountpoint: str, client_id: str, before: Record | None, after: Record | None
    ) -> None:
        if not self.follows(client_id):
            self.flaws.append("told before the routes")
        if self.directory.record(mountpoint, client_id) != after:
            self.flaws.append(f"told of {after}, which is none of now")
        was, now = (None if each is None else each.node for each in (before, after))
        self.owners.append((client_id, was, now))

    def follows(self, client_id: str) -> bool:
        """Whether the routes are as the record."""
        expected = Counter(wishes(self.directory.record("", client_id)))
        return self.seen.get(client_id, Counter()) == expected

    def session(self, client_id: str, clean: bool = True) -> Subscriber:
        registry = self.house.registry
        subscriber = registry.subscribers.get(client_id)
        if subscriber is not None:
            registry.end_session(subscriber)
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
def setting() -> Iterator[Setting]:
    made = Setting(House())
    yield made
    assert made.flaws == []


@pytest.fixture
def durable(tmp_path: Path) -> Iterator[Setting]:
    with stored_house(tmp_path) as house:
        made = Setting(house)
        yield made
        assert made.flaws == []


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


def test_nobody_deletes_the_record_of_another(setting: Setting) -> None:
    theirs = Record("b", NOW, False, {"t": 1})
    setting.hear("c", theirs)
    setting.directory.forget("", "c")
    setting.directory.flush()
    assert setting.stored("c") == theirs
    setting.directory.forget("", "unknown")
    assert setting.directory.record("", "unknown") is None


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
    assert setting.directory.record("", "d") == Record("a", NOW, True, {})
    assert not setting.seen["d"]
    assert setting.owners[2:] == [("c", "b", "b"), ("d", "b", "a")]


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
    setting.node.is_running = True  # it could not write for a while
    setting.directory.flush()
    assert len(setting.node.written) == 1


def test_of_a_record_that_comes_twice_in_a_step_owners_hear_once(setting: Setting) -> None:
    records = [Record(node, NOW, True, {"t": 1}) for node in ("b", "c")]
    key = encode_key("", "c")
    setting.node.hear(*((SUBSCRIBERS, key, encode(each)) for each in records))
    assert setting.owners == [("c", None, "c")]


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
    st.tuples(st.just("many"), st.sampled_from(IDS), st.integers(0, 2 * PIECE)),
    st.tuples(st.just("end"), st.sampled_from(IDS), st.none()),
    st.tuples(st.just("hear"), st.none(), CHANGES),
    st.tuples(st.just("flush"), st.none(), st.none()),
)


def check_census(setting: Setting) -> None:
    """Whether it says what a look at every record says."""
    records = [record for each in IDS if (record := setting.directory.record("", each)) is not None]
    for node in ("a", "b"):
        its = [record for record in records if record.node == node]
        tally = setting.directory.census.of(node)
        assert tally.clean == sum(each.clean for each in its)
        assert tally.durable == sum(not each.clean for each in its)
        assert tally.subscriptions == sum(len(each.subscriptions) for each in its)


def test_a_listing_bears_that_records_come_and_go_meanwhile(setting: Setting) -> None:
    for number in range(250):
        setting.hear(f"c{number:03}", Record("b", NOW, False, {"t": 1}))
    seen = []
    for _, name, record in setting.directory.records_while_written():
        assert record.node == "b"
        seen.append(name)
        if name == "c050":
            setting.hear("c200", None)
            setting.hear("c201x", Record("b", NOW, False, {}))
    assert seen == sorted({*(f"c{number:03}" for number in range(250)), "c201x"} - {"c200"})


@given(st.lists(ACTS, max_size=25))
def test_whatever_happens_followers_hear_of_every_step_between_two_records(acts: list[Any]) -> None:
    """`Setting.follow` asserts it: the routes are kept by what records were and are."""
    setting = Setting(House())
    registry = setting.house.registry
    for what, client_id, value in acts:
        setting.now += 1
        subscriber = registry.subscribers.get(client_id)
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
        elif subscriber is not None and what == "subscribe":
            registry.subscribe(subscriber, "t", value)
        elif subscriber is not None and what == "many":
            for number in range(value):
                registry.subscribe(subscriber, f"many/{number}", value % 3)
            for number in range(value, 2 * PIECE):
                registry.unsubscribe(subscriber, f"many/{number}")
        elif subscriber is not None and what == "end":
            registry.end_session(subscriber)
        for each in IDS:
            assert setting.follows(each)
        assert setting.flaws == []
        check_census(setting)
    setting.directory.flush()
    stored = {name: record for _, name, record in setting.directory.records()}
    assert stored == {name: record for _, name, record in setting.directory.records_while_written()}
    assert stored == {
        each: record for each in IDS if (record := setting.directory.record("", each)) is not None
    }


# --- sessions of many subscriptions

MANY = {f"t/{number}": 1 for number in range(3 * PIECE)}


def subscribe_all(setting: Setting, client_id: str, filters: dict[str, int]) -> None:
    for name, qos in filters.items():
        setting.subscribe(client_id, name, qos)


def keys(setting: Setting) -> list[bytes]:
    return [key for key, _ in setting.node.items(SUBSCRIBERS)]


def test_one_more_of_many_subscriptions_writes_a_bounded_piece(setting: Setting) -> None:
    setting.session("c")
    for name in MANY:
        setting.subscribe("c", name, 1)
        setting.directory.flush()
    assert setting.directory.record("", "c") is not None
    assert setting.follows("c")
    sizes = [len(value) for _, _, value, *_ in setting.node.written if value is not None]
    assert len(sizes) <= len(MANY) + 4
    assert max(sizes) < 20 * PIECE
    setting.node.written.clear()
    setting.subscribe("c", "t/5", 2)
    setting.house.registry.unsubscribe(setting.house.registry.subscribers["c"], "t/90")
    setting.directory.flush()
    assert len(setting.node.written) == 2
    record = present(setting.directory.record("", "c"))
    assert record.subscriptions == {
        name: 2 if name == "t/5" else 1 for name in MANY if name != "t/90"
    }
    assert list(setting.directory.records()) == [("", "c", record)]
    assert setting.follows("c")


def test_the_end_of_a_session_takes_its_pieces_along(setting: Setting) -> None:
    setting.session("c")
    subscribe_all(setting, "c", MANY)
    setting.directory.flush()
    assert len(keys(setting)) == 3
    setting.session("c")
    assert setting.directory.record("", "c") == Record("a", NOW + 1, True, {})
    subscribe_all(setting, "c", {"u": 0})
    setting.directory.flush()
    assert len(keys(setting)) == 1
    setting.house.registry.end_session(setting.house.registry.subscribers["c"])
    setting.directory.flush()
    assert keys(setting) == []
    assert setting.follows("c")


def test_a_session_that_comes_again_keeps_its_pieces(durable: Setting) -> None:
    setting = durable
    one = setting.session("c", clean=False)
    subscribe_all(setting, "c", MANY)
    setting.directory.flush()
    setting.node.written.clear()
    setting.now += 1
    setting.directory.claim(setting.house.registry, one)
    setting.directory.flush()
    assert len(setting.node.written) == 1
    record = present(setting.directory.record("", "c"))
    assert record.since == NOW + 1
    assert record.subscriptions == MANY


def theirs(pieces: str, since: int, first: dict[str, int], *others: dict[str, int]) -> list[Any]:
    """A record of node `b` with pieces, as it comes."""
    key = encode_key("", "c")
    heard: list[Any] = [(SUBSCRIBERS, key, encode(Record("b", since, False, first, True, pieces)))]
    for number, filters in enumerate(others, 1):
        raw = encode(Record("b", since, False, filters))
        heard.append((SUBSCRIBERS, encode_piece(key, pieces, number), raw))
    return heard


@pytest.mark.parametrize("order", [1, -1])
def test_pieces_and_their_record_may_come_in_any_order(setting: Setting, order: int) -> None:
    for each in theirs("b/7", 7, {"t": 1}, {"u": 1}, {"v": 2})[::order]:
        setting.node.hear(each)
        assert setting.follows("c")
    assert setting.directory.record("", "c") == Record(
        "b", 7, False, {"t": 1, "u": 1, "v": 2}, True, "b/7"
    )
    # All in one step, to other pieces, and a take-over with them.
    setting.node.hear(*theirs("b/7", 8, {"t": 1}, {"u": 2}, {"w": 2})[::order])
    assert setting.follows("c")
    setting.node.hear(*theirs("b/9", 9, {"x": 1}, {"y": 2})[::order])
    assert setting.follows("c")
    assert setting.directory.record("", "c") == Record("b", 9, False, {"x": 1, "y": 2}, True, "b/9")


def test_who_takes_over_deletes_the_pieces_of_the_last_owner_and_writes_its_own(
    durable: Setting,
) -> None:
    setting = durable
    setting.node.hear(*theirs("b/7", 7, {"t": 1}, {"u": 1}))
    setting.session("c", clean=False)
    subscribe_all(setting, "c", MANY)
    setting.directory.flush()
    assert setting.follows("c")
    assert not any(b"b/7" in key for key in keys(setting))
    # What that one wrote meanwhile does not count, and goes.
    late = theirs("b/7", 7, {}, {}, {"late": 1})[-1]
    setting.node.hear(late)
    assert setting.follows("c")
    setting.directory.flush()
    assert late[1] not in keys(setting)
    # What was made later may belong to a record that is still to come.
    early = theirs("b/5000", 5000, {"v": 1}, {"w": 1})[::-1]
    setting.node.hear(early[0])
    setting.directory.flush()
    assert early[0][1] in keys(setting)
    setting.node.hear(early[1])
    assert setting.follows("c")
    record = present(setting.directory.record("", "c"))
    assert record.subscriptions == {"v": 1, "w": 1}


def test_the_owner_puts_right_what_another_wrote_into_its_pieces(setting: Setting) -> None:
    setting.session("c")
    subscribe_all(setting, "c", MANY)
    setting.directory.flush()
    [_, one, two] = keys(setting)
    setting.node.hear(
        (SUBSCRIBERS, one, None),
        (SUBSCRIBERS, two, encode(Record("b", 1, True, {"odd": 1}))),
        (SUBSCRIBERS, two[:-1] + b"9", encode(Record("b", 1, True, {"more": 1}))),
    )
    assert setting.follows("c")
    setting.directory.flush()
    record = present(setting.directory.record("", "c"))
    assert record.subscriptions == MANY
    assert keys(setting)[1:] == [one, two]


def test_at_the_start_pieces_that_count_no_more_go(setting: Setting) -> None:
    key = encode_key("", "c")
    for pieces, node in (("a/1", "a"), ("b/2", "b")):
        raw = encode(Record(node, 1, True, {"t": 1}))
        setting.node.map[SUBSCRIBERS, encode_piece(key, pieces, 1)] = raw
    setting.directory.sweep()
    setting.directory.flush()
    assert keys(setting) == [encode_piece(key, "b/2", 1)], "that of another may still be used"
