"""Copies of others' sessions: which one counts, what is confirmed when, and what a restart finds."""

from typing import Any

from tests.simulator.disk import Database
from tests.support.stored import records_of
from vmq.clustering.messages.replication import (
    BeginCopy,
    Changes,
    ConfirmChanges,
    FollowerPosition,
    GreetFollower,
    MissingChanges,
    OfferCopy,
    ReplicaMessage,
    UnknownCopies,
)
from vmq.clustering.replication.follower import Follower, messages_of, rank
from vmq.store.entries import encode_message
from vmq.store.store import Store

S1, S2 = bytes(7) + b"\1", bytes(7) + b"\2"


class Keeper:
    """A node that keeps copies of `o`'s sessions."""

    def __init__(self, db: Database | None = None) -> None:
        self.db = db or Database()
        self.store = Store(self.db, "os", lambda: None)
        self.said: list[Any] = []
        self.purged: list[bytes] = []
        self.copies = Follower(self.store, self.say, self.purged.append)

    def say(self, _peer: str, message: ReplicaMessage) -> bool:
        self.said.append(message)
        return True

    def take(self, *messages: Changes) -> None:
        for each in messages:
            self.copies.on_changes("o", each)

    def commit(self) -> None:
        number = self.store.begin_commit()
        self.store.write()
        self.store.end_commit()
        self.copies.stored(number)

    def heard(self) -> list[Any]:
        said, self.said = self.said, []
        return said

    def offer(self, client: str = "s") -> OfferCopy:
        found = self.copies.offer(client)
        assert found is not None
        return found


def key(kind: bytes, session: bytes, place: int) -> bytes:
    return kind + session + place.to_bytes(8, "big")


def entry(payload: bytes, session: bytes = S1, place: int = 1) -> tuple[bytes, bytes]:
    return key(b"q", session, place), b"\1\0\0" + encode_message(b"t", payload)


def whole(life: int, number: int, payload: bytes, **fields: Any) -> Changes:
    return Changes(life, number, number, [entry(payload)], [], [BeginCopy(S1, "s")], [S1], **fields)


def test_nothing_is_confirmed_before_it_is_committed() -> None:
    keeper = Keeper()
    keeper.take(whole(7, 1, b"x", reset=True))
    assert keeper.heard() == []
    keeper.take(whole(7, 1, b"x", reset=True))
    assert keeper.heard() == []
    keeper.commit()
    assert keeper.heard() == [ConfirmChanges(7, 1)]
    keeper.take(whole(7, 1, b"x", reset=True))
    assert keeper.heard() == [ConfirmChanges(7, 1)], "it may have been lost"
    assert len(keeper.copies) == 1


def test_what_is_missing_is_asked_for_and_an_older_life_is_over() -> None:
    keeper = Keeper()
    keeper.take(whole(7, 1, b"x", reset=True), Changes(7, 3, 3))
    assert keeper.heard() == [MissingChanges(7, 2)]
    keeper.take(Changes(8, 2, 2), whole(6, 9, b"old", reset=True))
    assert keeper.heard() == []
    keeper.copies.on_greet("o", GreetFollower(8))
    assert keeper.heard() == [FollowerPosition(7, 0)], "nothing is committed"
    keeper.commit()
    keeper.copies.on_greet("o", GreetFollower(8))
    assert keeper.heard() == [ConfirmChanges(7, 1), FollowerPosition(7, 1)]


def test_a_restart_finds_what_was_committed() -> None:
    keeper = Keeper()
    keeper.take(whole(7, 1, b"x", reset=True))
    keeper.commit()
    keeper.take(Changes(7, 2, 2, [entry(b"y", place=2)]))
    keeper = Keeper(keeper.db)
    keeper.copies.on_greet("o", GreetFollower(7))
    assert keeper.heard() == [FollowerPosition(7, 1)]
    keeper.take(Changes(7, 2, 2, [entry(b"z", place=2)]))
    keeper.commit()
    assert keeper.heard() == [ConfirmChanges(7, 2)]
    assert [value[-1:] for _, value in records_of(keeper.db, b"q")] == [b"x", b"z"]
    assert (keeper.offer().life, keeper.offer().at, keeper.offer().complete) == (7, 2, True)
    assert keeper.store.next_session == 2


def test_a_copy_stays_until_the_one_that_replaces_it_is_whole() -> None:
    """However often the owner begins anew."""
    keeper = Keeper()
    keeper.take(whole(7, 1, b"x", reset=True))
    first = keeper.offer()
    for life in (8, 9):
        keeper.take(
            Changes(life, 1, 5, reset=True),
            Changes(life, 2, 6, [entry(b"y")], begun=[BeginCopy(S1, "s")]),
            Changes(life, 3, 7, begun=[BeginCopy(S1, "s")]),
        )
        assert keeper.offer() == first
        assert len(keeper.copies) == 2
    keeper.take(Changes(9, 4, 8, [entry(b"z")], complete=[S1]))
    assert (keeper.offer().life, keeper.offer().at) == (9, 8)
    assert len(keeper.copies) == 1
    assert first.copy in keeper.purged
    keeper.commit()
    found = {record[1:9] for record, _ in keeper.db.iterator(prefix=b"k")}
    assert found == {keeper.offer().copy}


def test_a_frozen_copy_takes_no_more_and_ranks_by_when_it_froze() -> None:
    keeper = Keeper()
    keeper.take(whole(7, 1, b"x", reset=True))
    keeper.take(Changes(7, 5, 50, frozen=[S1], reset=True))
    keeper.take(Changes(7, 6, 60, [entry(b"y", place=2)]))
    assert (keeper.offer().complete, keeper.offer().at) == (True, 1)
    keeper.commit()
    assert len(records_of(keeper.db, b"q")) == 1
    assert UnknownCopies not in map(type, keeper.heard())
    assert rank(keeper.offer()) < rank(OfferCopy("o", S1, True, 7, 2, S1))
    keeper = Keeper(keeper.db)
    assert keeper.offer().at == 1


def test_changes_of_a_session_that_is_not_here_are_told() -> None:
    keeper = Keeper()
    keeper.take(Changes(7, 1, 1, [entry(b"x", S2)], reset=True))
    assert keeper.heard() == [UnknownCopies(7, [S2])]
    keeper.commit()
    assert records_of(keeper.db, b"q") == []


def test_sessions_that_ended_leave_records_to_be_deleted() -> None:
    keeper = Keeper()
    keeper.take(whole(7, 1, b"x", reset=True), Changes(7, 2, 2, ended=[S1]))
    keeper.commit()
    assert keeper.copies.offer("s") is None
    assert keeper.copies.owners() == set()
    assert len(keeper.purged) == 1
    assert [record[1:] for record, _ in keeper.db.iterator(prefix=b"g")] == keeper.purged


def test_a_long_message_is_stored_once_for_all_copies() -> None:
    keeper = Keeper()
    body = encode_message(b"t", b"x" * 5000)
    named = b"\x09\0\0" + bytes(8)
    keeper.take(
        Changes(
            7,
            1,
            1,
            [(key(b"q", S1, 1), named), (key(b"i", S2, 1), named), (key(b"q", S2, 1), named)],
            [body],
            [BeginCopy(S1, "s"), BeginCopy(S2, "t")],
            [S1, S2],
            reset=True,
        ),
        Changes(7, 2, 2, [(key(b"q", S2, 1), None)]),
    )
    keeper.commit()
    assert [value for _, value in keeper.db.iterator(prefix=b"m")] == [body]
    assert [value for _, value in keeper.db.iterator(prefix=b"c")] == [b"\0\0\0\2"]
    keeper.take(Changes(7, 3, 3, [(key(b"q", S1, 1), None), (key(b"i", S2, 1), None)]))
    keeper.commit()
    assert list(keeper.db.iterator(prefix=b"m")) == []
    [message] = messages_of([body])
    assert (message.topic, message.payload) == (b"t", b"x" * 5000)
