"""Many clients that take nothing of what is sent to them: their queues lose, and nobody else has to wait."""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.attacks.size import size
from tests.support.wire import PUBACK, Wire, publish_packet

if TYPE_CHECKING:
    from tests.conftest import BrokerFactory
    from vmq.testing.process import BrokerProcess

LIMIT: Final = 200 << 20
PAYLOAD: Final = 100_000


def peak_memory(broker: BrokerProcess) -> int:
    """The most that the broker has ever had in RAM, in bytes."""
    status = Path(f"/proc/{broker.pid}/status").read_text(encoding="ascii")
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found is not None
    return int(found.group(1)) * 1024


def test_clients_that_read_nothing_cost_no_more_memory_than_there_is(
    fresh_broker: BrokerFactory,
) -> None:
    """All of their queues together would be larger than the broker may be."""
    broker = fresh_broker(env={"VMQ_LIMITS__MAX_MEMORY": str(LIMIT)})
    deaf, rounds = size(20, 40), 170
    with ExitStack() as stack:
        for index in range(deaf):
            wire = stack.enter_context(Wire.connected(broker.tcp, f"deaf{index}"))
            wire.subscribe((f"t/{index}", 1))
        reader = stack.enter_context(Wire.connected(broker.tcp, "reader"))
        reader.subscribe(("read", 1))
        publisher = stack.enter_context(Wire.connected(broker.tcp, "publisher"))
        for turn in range(rounds):
            for index in range(deaf):
                payload = bytes(PAYLOAD)
                publisher.ask(publish_packet(f"t/{index}", payload, qos=1, packet_id=1), PUBACK)
            publisher.publish("read", b"%d" % turn, qos=1)
            reader.acknowledge(reader.expect_publish("read", b"%d" % turn, qos=1))
        broker.wait_log("dropped client=deaf.* reason=memory_full messages=")
    assert peak_memory(broker) < LIMIT
    assert "memory is high" not in broker.stderr_text(), "publishers did not have to wait"
