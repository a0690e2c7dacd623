"""Who gets in who should not, or past a limit: through the files of users and rules."""

from tests.support.guarded import Guarded
from tests.support.wire import CONNACK, connect_packet, publish_packet

ACL = "user alice\ntopic jobs/#\nuser bob\ntopic jobs/#\n"


def test_sighup_has_files_read_that_nobody_looks_at(guarded: Guarded) -> None:
    """`reload_interval` is 0: a user who is taken out stays out, and whose rule goes, may no more."""
    guarded.start(ACL)
    alice, bob = guarded.connect("alice", "a"), guarded.connect("bob", "b")
    guarded.reload(users=("bob",), acl="user bob\ntopic read jobs/#\n")
    alice.expect_closed()
    assert guarded.ask("alice", "a")[1].return_code == 4
    bob.ended_by(publish_packet("jobs/1", b"x", qos=1, packet_id=1))


def test_the_code_for_wrong_credentials_is_an_option(guarded: Guarded) -> None:
    """It is 4 if nobody says anything."""
    guarded.start(ACL, "[auth]\nrefusal_code = 5\n")
    wire = guarded.wire()
    wire.send(connect_packet("a", username="alice", password="wrong"))
    assert wire.expect(CONNACK).return_code == 5
    wire.expect_closed()
