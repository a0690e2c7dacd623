"""Rights that were taken away: what was queued, in flight or shared under them is not delivered any more."""

import pytest

from tests.attacks.size import size
from tests.support.guarded import Guarded
from tests.support.wire import Wire

ALL = """\
user alice
topic read news/#
topic read secret/#
user bob
topic read news/#
topic read secret/#
user carol
topic write news/#
topic write secret/#
"""
#: Alice may not read secret/# any more.
LESS = ALL.replace("topic read secret/#\n", "", 1)


def reader(guarded: Guarded, qos: int) -> Wire:
    """A durable session of Alice that reads both."""
    wire, connack = guarded.ask("alice", f"pump {qos}", clean=False)
    if not connack.session_present:
        assert wire.subscribe(("news/#", qos), ("secret/#", qos)).codes == [qos, qos]
    return wire


def publish(guarded: Guarded, count: int, qos: int = 1) -> None:
    """Both kinds, in turn."""
    carol = guarded.connect("carol", f"c{count}")
    for number in range(count):
        carol.publish("secret/1", b"secret %d" % number, qos=qos)
        carol.publish("news/1", b"news %d" % number, qos=qos)
    carol.disconnect()


def read_news(wire: Wire, count: int) -> None:
    for number in range(count):
        wire.acknowledge(wire.expect_publish("news/1", b"news %d" % number))
    wire.expect_nothing()


#: When the right is taken: while Alice is away, in a restart, or in a restart behind it.
WHEN = ("away", "stopped", "stopped after")


def take_right(guarded: Guarded, when: str) -> None:
    if when == "stopped":
        (guarded.folder / "acl").write_text(LESS)
    else:
        guarded.reload(acl=LESS)
    if when != "away":
        guarded.restart()


@pytest.mark.parametrize("when", WHEN)
def test_neither_what_was_in_flight_nor_what_was_queued_is_delivered(
    guarded: Guarded, when: str
) -> None:
    guarded.start(ALL)
    count = size(30, 400)
    readers = {qos: reader(guarded, qos) for qos in (1, 2)}
    publish(guarded, 1, 2)
    for alice in readers.values():
        alice.expect_publish("secret/1")
        alice.expect_publish("news/1")
        alice.close()
    publish(guarded, count, 2)
    take_right(guarded, when)
    readers = {qos: reader(guarded, qos) for qos in readers}
    for alice in readers.values():
        alice.acknowledge(alice.expect_publish("news/1", dup=True))
        read_news(alice, count)
    publish(guarded, 1, 2)
    for alice in readers.values():
        read_news(alice, 1)


@pytest.mark.parametrize("clean", [False, True])
def test_what_waits_for_a_client_that_is_here_is_not_delivered(
    guarded: Guarded, *, clean: bool
) -> None:
    """Its window is full; with it closed, the right is taken."""
    guarded.start(ALL, "[queue]\nmax_inflight_messages = 2\n")
    alice = guarded.connect("alice", "pump", clean=clean)
    alice.subscribe(("news/#", 1), ("secret/#", 1))
    publish(guarded, size(30, 400))
    sent = [alice.expect_publish("secret/1"), alice.expect_publish("news/1", b"news 0")]
    guarded.reload(acl=LESS)
    for each in sent:
        alice.acknowledge(each)
    for number in range(1, size(30, 400)):
        alice.acknowledge(alice.expect_publish("news/1", b"news %d" % number))
    alice.expect_nothing()


def test_another_subscription_that_matches_is_enough(guarded: Guarded) -> None:
    guarded.start(ALL + "user alice\ntopic read secret/1\n")
    alice = guarded.connect("alice", "pump", clean=False)
    alice.subscribe(("secret/#", 1), ("secret/1", 0))
    alice.disconnect()
    publish(guarded, 1)
    guarded.connect("carol", "c").publish("secret/2", b"no", qos=1)
    guarded.reload(acl=LESS + "user alice\ntopic read secret/1\n")
    alice = guarded.connect("alice", "pump", clean=False)
    alice.acknowledge(alice.expect_publish("secret/1"))
    alice.expect_nothing()


@pytest.mark.parametrize("restarts", [False, True])
def test_another_member_of_the_share_group_gets_it(guarded: Guarded, *, restarts: bool) -> None:
    guarded.start(ALL)
    alice = guarded.connect("alice", "pump", clean=False)
    alice.subscribe(("$share/g/secret/#", 1))
    alice.disconnect()
    publish(guarded, size(5, 200))
    bob = guarded.connect("bob", "b")
    bob.subscribe(("$share/g/secret/#", 1))
    guarded.reload(acl=LESS)
    if restarts:
        guarded.restart()
        bob = guarded.connect("bob", "b")
        bob.subscribe(("$share/g/secret/#", 1))
    guarded.connect("alice", "pump", clean=False).expect_nothing()
    for number in range(size(5, 200)):
        bob.acknowledge(bob.expect_publish("secret/1", b"secret %d" % number))
    bob.expect_nothing()


def test_many_subscriptions_are_asked_about_before_anything_is_sent(guarded: Guarded) -> None:
    """More than are asked about in one go: the last is the one that is taken away."""
    rules = "".join(f"topic read news/{number}\n" for number in range(600))
    guarded.start(ALL + "user bob\n" + rules + "user carol\ntopic write end/#\n")
    filters = [(f"news/{number}", 1) for number in range(600)]
    bob = guarded.connect("bob", "many", clean=False)
    bob.subscribe(*filters, ("secret/1", 1))
    bob.disconnect()
    publish(guarded, 1)
    before, _, after = (ALL + "user bob\n" + rules).rpartition("topic read secret/#\n")
    (guarded.folder / "acl").write_text(before + after)
    guarded.restart()
    bob = guarded.connect("bob", "many", clean=False)
    bob.acknowledge(bob.expect_publish("news/1", b"news 0"))
    bob.expect_nothing()
