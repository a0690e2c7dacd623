"""PUBACK, PUBREC, PUBREL and PUBCOMP (sections 3.4 to 3.7): packets of a packet id alone, a run of them at a time.

They are the client's; the broker's own wait for the commit in `vmq.core.output`.
"""

from typing import Final

from vmq.mqtt.encoder import PUBCOMP_HEAD, answers
from vmq.mqtt.packets import PACKET_NAMES, PUBACK, PUBREC, PUBREL, ProtocolError
from vmq.protocol.publish import Publisher

#: So many are handled at once.
LONGEST_RUN: Final = 1000
#: And where they may be rows of a replay, each of which counts as so much work: acknowledged in their order, and where
#: they are single.
RUN_OF_ROWS: Final = 256
WORK_OF_ROW: Final = 4
WORK_OF_SINGLE: Final = 32


def on_acknowledgements(publisher: Publisher, kind: int) -> None:
    """Handles the present packet and those right behind it that begin with the same byte.

    Raises:
        ProtocolError: one is not of two bytes, has the packet id 0, or is not what is due.
    """
    decoder = publisher.decoder
    if decoder.end - decoder.body != 2:
        raise ProtocolError(PACKET_NAMES[kind] + " of wrong length", "MQTT-4.8.0-1")
    queue = publisher.queue_of()
    is_of_rows = queue.has_readers
    if decoder.body - decoder.start == 2:
        count = decoder.run_of_ids(RUN_OF_ROWS if is_of_rows else LONGEST_RUN)
        run = decoder.data[decoder.start : decoder.end]
    else:  # its length is spelled in more bytes than it needs
        count = 1
        run = bytes((decoder.head, 2)) + decoder.data[decoder.body : decoder.end]
    core = publisher.core
    work = 1
    if is_of_rows:
        work = WORK_OF_SINGLE if queue.inflight.count else WORK_OF_ROW
    core.work += count * work
    counters = core.counters
    if kind == PUBREL:
        counters.mqtt_pubrel_received += count
        publisher.on_pubrels(run)
        counters.mqtt_pubcomp_sent += count
        publisher.output.add(answers(run, PUBCOMP_HEAD))
        return
    if kind == PUBACK:
        counters.mqtt_puback_received += count
    elif kind == PUBREC:
        counters.mqtt_pubrec_received += count
    else:
        counters.mqtt_pubcomp_received += count
    queue.on_acknowledgements(kind, run)
