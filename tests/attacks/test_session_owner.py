"""Bob connects with the client id of Alice's durable session: to have its messages, or to delete them."""

import pytest

from tests.support.guarded import Guarded
from tests.support.wire import Wire

ACL = """\
user alice
topic read news/#
topic read secret/#
user bob
topic read news/#
user carol
topic write news/#
topic write secret/#
"""
ANYBODY = '[session]\nowner = "client_id"\n'


def leave_with_mail(guarded: Guarded) -> None:
    """Alice leaves a session, for which something waits then."""
    alice = guarded.connect("alice", "pump", clean=False)
    assert alice.subscribe(("news/#", 1), ("secret/#", 1)).codes == [1, 1]
    alice.disconnect()
    carol = guarded.connect("carol", "c")
    carol.publish("secret/1", b"for alice", qos=1)
    carol.publish("news/1", b"for many", qos=1)


def read_two(wire: Wire) -> None:
    wire.acknowledge(wire.expect_publish("secret/1", b"for alice"))
    wire.acknowledge(wire.expect_publish("news/1", b"for many"))


@pytest.mark.parametrize("restarts", [False, True])
def test_another_user_neither_gets_nor_deletes_it_before_its_user_has(
    guarded: Guarded, *, restarts: bool
) -> None:
    """Nor is the connection ended that it has."""
    guarded.start(ACL)
    leave_with_mail(guarded)
    if restarts:
        guarded.restart()
    for clean in (False, True):
        bob, connack = guarded.ask("bob", "pump", clean=clean)
        assert (connack.return_code, connack.session_present) == (2, 0)
        bob.expect_closed()
    refused = (
        r'login refused client=pump user="bob" peer=\S+ code=2 '
        r'reason="refused: the session belongs to user \\"alice\\" \(session\.owner\)"'
    )
    guarded.broker.wait_log(refused)
    alice = guarded.connect("alice", "pump", clean=False)
    read_two(alice)
    for clean in (False, True):
        assert guarded.ask("bob", "pump", clean=clean)[1].return_code == 2
    alice.expect_nothing()
    leave_with_mail(guarded)
    guarded.connect("alice", "pump").disconnect()
    bob, connack = guarded.ask("bob", "pump", clean=False)
    assert (connack.return_code, connack.session_present) == (0, 0)
    bob.expect_nothing()
    assert guarded.ask("alice", "pump")[1].return_code == 2


@pytest.mark.parametrize("restarts", [False, True])
def test_a_session_without_a_user_is_the_first_one_s(guarded: Guarded, *, restarts: bool) -> None:
    """A site had no passwords, and has some now: its sessions go on, each with the first who comes."""
    anonymous = "[auth]\nallow_anonymous = true\n"
    guarded.start(ACL, anonymous)
    wire = guarded.wire()
    wire.connect("pump", clean=False)
    wire.disconnect()
    if restarts:
        guarded.restart()
    bob, connack = guarded.ask("bob", "pump", clean=False)
    assert (connack.return_code, connack.session_present) == (0, 1)
    bob.disconnect()
    assert guarded.ask("alice", "pump")[1].return_code == 2
    nameless = guarded.wire()
    with pytest.raises(AssertionError, match="refused"):
        nameless.connect("pump")


@pytest.mark.parametrize("restarts", [False, True])
def test_with_the_client_id_as_owner_others_get_what_they_may_read(
    guarded: Guarded, *, restarts: bool
) -> None:
    guarded.start(ACL, ANYBODY)
    leave_with_mail(guarded)
    if restarts:
        guarded.restart()
    bob, connack = guarded.ask("bob", "pump", clean=False)
    assert (connack.return_code, connack.session_present) == (0, 1)
    bob.acknowledge(bob.expect_publish("news/1", b"for many"))
    bob.expect_nothing()
    guarded.connect("carol", "c2").publish("secret/1", b"more", qos=1)
    bob.expect_nothing()


def test_what_was_in_flight_for_another_is_not_sent_again(guarded: Guarded) -> None:
    guarded.start(ACL, ANYBODY)
    carol = guarded.connect("carol", "c")
    for qos in (1, 2):
        alice = guarded.connect("alice", f"pump {qos}", clean=False)
        alice.subscribe(("news/#", qos), ("secret/#", qos))
        for topic in ("secret/1", "news/1"):
            carol.publish(topic, b"x", qos=qos)
            alice.expect_publish(topic, qos=qos)
        alice.unsubscribe("news/#")  # in flight all the same, and Alice's alone
        alice.close()
        guarded.connect("bob", f"pump {qos}", clean=False).expect_nothing()
