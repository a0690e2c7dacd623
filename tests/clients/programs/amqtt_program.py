"""Drives amqtt's client on orders from standard input."""

import asyncio
from itertools import islice

from amqtt.client import MQTTClient
from amqtt.contexts import ClientConfig

from tests.clients.programs.lines import Record, address, emit_closed, emit_message, payloads, serve

# amqtt waits for the acknowledgement of each publish: this many are under way at once.
WINDOW = 20


class AmqttClient:
    """One amqtt client that does not reconnect by itself."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._client: MQTTClient
        self._pump: asyncio.Task[None]

    async def open(self, call: Record) -> Record:
        scheme, host, port, path = address(call)
        config = {
            "keep_alive": call["keepalive"],
            "auto_reconnect": False,
            "cleansession": call["clean"],
            # Without plugins (its packet logger is one by default) nothing is left between a
            # packet's write and the wait for its answer: a fast broker's answer cannot get lost.
            "plugins": {},
        }
        if call["will"] is not None:
            config["will"] = {
                "topic": call["will"]["topic"],
                "message": call["will"]["payload"],
                "qos": call["will"]["qos"],
                "retain": call["will"]["retain"],
            }
        self._client = MQTTClient(call["id"], ClientConfig.from_dict(config))
        url = f"{'ws' if scheme == 'ws' else 'mqtt'}://{host}:{port}{path}"
        await self._client.connect(url, cleansession=call["clean"])
        self._pump = asyncio.create_task(self._report())
        return {"session_present": None}  # amqtt does not say

    async def _report(self) -> None:
        try:
            while (message := await self._client.deliver_message()) is not None:
                assert message.data is not None
                packet = message.publish_packet
                assert packet is not None
                emit_message(
                    self.name,
                    message.topic,
                    bytes(message.data),
                    packet.qos or 0,
                    packet.retain_flag,
                    packet.dup_flag,
                )
        except asyncio.CancelledError:
            pass  # how amqtt ends the read that waits when the connection is gone
        emit_closed(self.name)

    async def subscribe(self, call: Record) -> Record:
        granted = await self._client.subscribe([(topic, qos) for topic, qos in call["filters"]])
        return {"granted": granted}

    async def unsubscribe(self, call: Record) -> Record:
        await self._client.unsubscribe(call["filters"])
        return {}

    async def publish(self, call: Record) -> Record:
        waiting = iter(payloads(call))
        while batch := list(islice(waiting, WINDOW)):
            await asyncio.gather(
                *(
                    self._client.publish(call["topic"], payload, call["qos"], call["retain"])
                    for payload in batch
                )
            )
        return {}

    async def close(self, call: Record) -> Record:
        if not self._pump.done():
            await self._client.disconnect()
            # amqtt ends the read that waits when it disconnects, but not one that starts meanwhile.
            self._pump.cancel()
            await self._pump
        return {}


if __name__ == "__main__":
    asyncio.run(serve(AmqttClient))
