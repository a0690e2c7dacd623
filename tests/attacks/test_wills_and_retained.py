"""What a client left behind, a will or a retained message, once its right to publish it is gone."""

import pytest

from tests.attacks.size import size
from tests.support.guarded import Guarded
from tests.support.wire import PINGREQ_BYTES, PUBLISH, Will, Wire

ALL = """\
user alice
topic write home/#
topic write wills/#
user bob
topic read home/#
topic read wills/#
topic write wills/end
user carol
topic write home/#
"""
#: Alice may publish nothing any more.
NOTHING = ALL.replace("topic write home/#\ntopic write wills/#\n", "", 1)


def reader(guarded: Guarded, topic_filter: str = "wills/#") -> Wire:
    wire = guarded.connect("bob", "reader")
    assert wire.subscribe((topic_filter, 1)).codes == [1]
    return wire


def expect_no_will(bob: Wire) -> None:
    bob.publish("wills/end", b"", qos=1)
    bob.expect_publish("wills/end")


@pytest.mark.parametrize(("how", "clean"), [("lost", True), ("taken over", False)])
def test_a_will_is_not_published_once_the_right_is_gone(
    guarded: Guarded, how: str, *, clean: bool
) -> None:
    guarded.start(ALL)
    bob = reader(guarded)
    will = Will("wills/alice", b"gone", retain=True)
    alice = guarded.connect("alice", "pump", clean=clean, will=will)
    alice.close()
    bob.acknowledge(bob.expect_publish("wills/alice", b"gone", qos=0))
    alice = guarded.connect("alice", "pump", clean=clean, will=will)
    guarded.reload(acl=NOTHING)
    if how == "lost":
        alice.close()
    else:
        guarded.connect("alice", "pump", clean=clean)
    guarded.broker.wait_log(
        r'will refused client=pump user="alice" topic="wills/alice" plugin=none reason='
    )
    expect_no_will(bob)


@pytest.mark.parametrize("ends", ["deleted", "never"])
def test_a_deleted_user_s_will_is_not_published(guarded: Guarded, ends: str) -> None:
    """Whether its connection is ended, or stays until it ends by itself."""
    guarded.start(ALL, "", {"VMQ_PLUGINS__VMQ_PASSWD__END_CONNECTIONS": ends})
    bob = reader(guarded)
    alice = guarded.connect("alice", "pump", will=Will("wills/alice", b"gone"))
    guarded.reload(users=("bob", "carol"))
    if ends == "deleted":
        alice.expect_closed()
    else:
        alice.publish("home/1", b"goes on", qos=1)
    alice.close()
    guarded.broker.wait_log("closed client=pump ")
    expect_no_will(bob)


def keep(guarded: Guarded, count: int) -> None:
    """Alice and Carol retain so many messages each."""
    for user in ("alice", "carol"):
        wire = guarded.connect(user, f"of {user}")
        for number in range(count):
            wire.publish(f"home/{user}/{number}", b"kept", qos=1, retain=True)
        wire.disconnect()


def kept_of(guarded: Guarded, count: int) -> set[str]:
    """Whose retained messages a new subscription brings; it is so many of each."""
    bob = guarded.connect("bob", "reader")
    bob.subscribe(("home/#", 0))
    found: list[str] = []
    is_over = False
    while not is_over:  # they come in steps, and the answer to a ping waits for none of them
        bob.send(PINGREQ_BYTES)
        is_over = True
        while (packet := bob.recv_packet()).type == PUBLISH:
            assert packet.retain
            found.append(packet.topic.split("/")[1])
            is_over = False
    bob.disconnect()
    users = set(found)
    assert sorted(found) == sorted([*users] * count)
    return users


@pytest.mark.parametrize("restarts", [False, True])
def test_a_retained_message_goes_to_nobody_once_its_source_may_not_publish_it(
    guarded: Guarded, *, restarts: bool
) -> None:
    guarded.start(ALL)
    count = size(15, 120)
    keep(guarded, count)
    assert kept_of(guarded, count) == {"alice", "carol"}
    guarded.reload(acl=NOTHING)
    if restarts:
        guarded.restart()
    assert kept_of(guarded, count) == {"carol"}
    guarded.reload(acl=ALL)
    assert kept_of(guarded, count) == {"alice", "carol"}


def test_a_retained_will_has_a_source(guarded: Guarded) -> None:
    guarded.start(ALL)
    will = Will("home/alice/will", b"gone", retain=True)
    guarded.connect("alice", "pump", will=will).close()
    guarded.broker.wait_log("closed client=pump ")
    assert kept_of(guarded, 1) == {"alice"}
    guarded.reload(acl=NOTHING)
    assert kept_of(guarded, 1) == set()
