"""What one connection is sent of a client whose session is in a slot."""

from tests.vmq.support import House
from vmq.core.ports import FrontPort
from vmq.mqtt.message import Message, Transient
from vmq.protocol.front_queue import LAST_OF_SESSION, FrontQueue


def test_packet_ids_of_what_is_no_session_state_stay_above_those_of_sessions(house: House) -> None:
    """Those in use are passed over, also where these are the last ones."""
    queue = FrontQueue("c", house.core, lambda _: None, 1, FrontPort())

    def send() -> Transient:
        delivery = Transient(Message(b"t", b"", 1, False), b"")
        queue.enter_window(delivery)
        return delivery

    queue.older = {LAST_OF_SESSION + 1, 65_534}
    queue.inflight.last_packet_id = 65_532
    held = send()
    assert held.packet_id == 65_533
    queue.inflight.last_packet_id = 65_534
    last = send()
    assert last.packet_id == 65_535
    queue.take_back(held)
    queue.inflight.last_packet_id = 65_533
    assert send().packet_id == LAST_OF_SESSION + 2
    assert queue.most_transient() < 65_535 - LAST_OF_SESSION
