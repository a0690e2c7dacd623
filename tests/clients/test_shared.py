"""Shared subscriptions, with paho."""

import pytest

from tests.clients.factory import ClientFactory

MEMBERS = 3


@pytest.mark.parametrize("qos", (0, 1, 2))
def test_each_message_goes_to_one_member(clients: ClientFactory, topic: str, qos: int) -> None:
    """The members of a group share the messages; others get all of them as usual."""
    group = [clients("paho", (f"$share/g/{topic}/+", qos)) for _ in range(MEMBERS)]
    other_group = clients("paho", (f"$share/h/{topic}/+", qos))
    alone = clients("paho", (f"{topic}/+", qos))
    publisher = clients("paho")
    payloads = [b"%03d" % number for number in range(300)]
    publisher.publish(f"{topic}/x", *payloads, qos=qos)
    assert [message.payload for message in alone.receive(300)] == payloads
    assert [message.payload for message in other_group.receive(300)] == payloads

    # A message to each member itself, behind all others, tells that it has got its share.
    shares = []
    for member in group:
        inbox = f"{topic}/{member.client_id}/end"
        # Only the clients that a driver program runs, as paho, subscribe while connected.
        member.subscribe((inbox, qos))  # type: ignore[attr-defined]
        publisher.publish(inbox, b"end", qos=qos)
        shares.append([message.payload for message in member.receive_until(b"end")])
    assert sorted(payload for share in shares for payload in share) == payloads
    assert all(shares), [len(share) for share in shares]
    assert all(share == sorted(share) for share in shares)


@pytest.mark.parametrize("qos", (1, 2))
def test_a_killed_members_messages_go_to_another(
    clients: ClientFactory, topic: str, qos: int
) -> None:
    """What a killed member had not acknowledged, and what it had not yet got, goes elsewhere.

    paho holds back PUBACK at QoS 1. At QoS 2 it sends PUBREC all the same and with it takes charge
    of the message, which nobody else may get then.
    """
    shared = (f"$share/g/{topic}", qos)
    holder = clients("paho", shared, hold_acks=True, own_program=True)
    publisher = clients("paho")
    payloads = [b"%02d" % number for number in range(40)]
    publisher.publish(topic, *payloads, qos=qos)
    held = [message.payload for message in holder.receive(20)]
    assert held == payloads[:20], "as many as the inflight window lets through"
    heir = clients("paho", shared)
    holder.kill()
    left = payloads if qos == 1 else payloads[20:]
    assert sorted(message.payload for message in heir.receive(len(left))) == left
    publisher.publish(topic, b"end", qos=qos)
    assert heir.receive_until(b"end") == []
