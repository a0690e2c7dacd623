"""A broker that dies at any commit loses and doubles nothing."""

from pathlib import Path

import pytest

from tests.support import wire as mqtt
from tests.vmq.support import Client, House, stored_house


class Publisher:
    """A client that publishes payloads at QoS 2, one after the other, and repeats what it must."""

    def __init__(self, payloads: list[bytes]) -> None:
        self.payloads = payloads
        #: What the broker owes an answer for: PUBREC or PUBCOMP.
        self.released = False

    def connect(self, house: House) -> None:
        self.client = Client(house)
        self.client.send(mqtt.connect_packet("publisher", clean=False))
        self.say(dup=True)

    def say(self, *, dup: bool) -> None:
        if self.released:
            self.client.send(mqtt.pubrel_packet(1))
        elif self.payloads:
            self.client.send(
                mqtt.publish_packet("t", self.payloads[0], qos=2, packet_id=1, dup=dup)
            )

    def step(self) -> bool:
        packets = [each for each in self.client.take() if each.type in (mqtt.PUBREC, mqtt.PUBCOMP)]
        for each in packets:
            if each.type == mqtt.PUBREC:
                self.released = True
            elif self.released:
                self.released = False
                del self.payloads[0]
            self.say(dup=False)
        return bool(packets)


class Receiver:
    """A client that subscribes at QoS 2 and takes each message once, by its packet id."""

    def __init__(self) -> None:
        self.payloads: list[bytes] = []
        self.owned: set[int] = set()

    def connect(self, house: House) -> None:
        self.client = Client(house)
        self.client.send(mqtt.connect_packet("receiver", clean=False))

    def step(self) -> bool:
        packets = [each for each in self.client.take() if each.type in (mqtt.PUBLISH, mqtt.PUBREL)]
        for each in packets:
            if each.type == mqtt.PUBREL:
                self.owned.discard(each.packet_id)
                self.client.send(mqtt.pubcomp_packet(each.packet_id))
                continue
            if each.packet_id not in self.owned:
                self.owned.add(each.packet_id)
                self.payloads.append(each.payload)
            self.client.send(mqtt.pubrec_packet(each.packet_id))
        return bool(packets)


def commit_and_maybe_die(house: House, death: str | None) -> bool:
    """One commit; it dies "before" it, "between" it and the release, or "after" both."""
    store = house.store
    assert store is not None
    if death != "before":
        done = store.begin_commit()
        store.write()
        store.end_commit()
        if death != "between":
            house.core.outbox.release(done)
    if death is None:
        return False
    house.restart()
    return True


@pytest.mark.parametrize("death", ("before", "between", "after"))
def test_killed_at_any_commit_nothing_is_lost_or_doubled(tmp_path: Path, death: str) -> None:
    wanted = [b"1", b"2", b"3"]
    commits_until_done = 0
    for kill_at in range(100):
        with stored_house(tmp_path / str(kill_at)) as house:
            receiver, publisher = Receiver(), Publisher(list(wanted))
            receiver.connect(house)
            receiver.client.send(mqtt.subscribe_packet(1, ("t", 2)))
            house.patient = True
            publisher.connect(house)
            count = 0
            is_busy = True
            while is_busy:
                is_busy = receiver.step() | publisher.step()
                assert house.store is not None
                if not house.store.is_due:
                    continue
                is_busy = True
                if commit_and_maybe_die(house, death if count == kill_at else None):
                    receiver.connect(house)
                    publisher.connect(house)
                count += 1
            assert receiver.payloads == wanted
            assert publisher.payloads == []
            assert receiver.owned == set()
            commits_until_done = count
        if kill_at > commits_until_done:
            break
    assert commits_until_done >= 7


@pytest.mark.parametrize("dies", (False, True))
def test_a_session_that_a_client_has_ended_is_not_back(tmp_path: Path, dies: bool) -> None:
    """CONNACK waits until that is on disk: its client knows by it that nothing is left [MQTT-3.1.2-6]."""
    with stored_house(tmp_path) as house:
        receiver = Receiver()
        receiver.connect(house)
        receiver.client.send(mqtt.subscribe_packet(1, ("t", 2)))
        receiver.client.take()
        house.patient = True
        clean = Client(house)
        clean.send(mqtt.connect_packet("receiver"))
        assert clean.take() == []
        if not commit_and_maybe_die(house, "between" if dies else None):
            assert [each.type for each in clean.take()] == [mqtt.CONNACK]
        again = Client(house)
        again.send(mqtt.connect_packet("receiver", clean=False))
        commit_and_maybe_die(house, None)
        (connack,) = again.take()
        assert not connack.session_present
