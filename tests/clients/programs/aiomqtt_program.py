"""Drives aiomqtt on orders from standard input."""

import asyncio

import aiomqtt

from tests.clients.programs.lines import Record, address, emit_closed, emit_message, payloads, serve

TIMEOUT = 60.0
PROTOCOLS = {3: aiomqtt.ProtocolVersion.V31, 4: aiomqtt.ProtocolVersion.V311}


class AiomqttClient:
    """One aiomqtt client, entered by `open` and left by `close`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._client: aiomqtt.Client
        self._pump: asyncio.Task[None]

    async def open(self, call: Record) -> Record:
        scheme, host, port, path = address(call)
        will = call["will"]
        self._client = aiomqtt.Client(
            host,
            port,
            identifier=call["id"],
            clean_session=call["clean"],
            protocol=PROTOCOLS[call["version"]],
            transport="websockets" if scheme == "ws" else "tcp",
            websocket_path=path or None,
            keepalive=call["keepalive"],
            will=aiomqtt.Will(**will) if will is not None else None,
            timeout=TIMEOUT,
        )
        await self._client.__aenter__()
        self._pump = asyncio.create_task(self._report())
        return {"session_present": None}  # aiomqtt does not say

    async def _report(self) -> None:
        try:
            async for message in self._client.messages:
                assert isinstance(message.payload, bytes)
                topic = message.topic.value
                emit_message(self.name, topic, message.payload, message.qos, message.retain, None)
        except aiomqtt.MqttError:
            emit_closed(self.name)

    async def subscribe(self, call: Record) -> Record:
        granted = await self._client.subscribe([(topic, qos) for topic, qos in call["filters"]])
        return {"granted": [code if isinstance(code, int) else code.value for code in granted]}

    async def unsubscribe(self, call: Record) -> Record:
        await self._client.unsubscribe(call["filters"])
        return {}

    async def publish(self, call: Record) -> Record:
        await asyncio.gather(
            *(
                self._client.publish(call["topic"], payload, call["qos"], call["retain"])
                for payload in payloads(call)
            )
        )
        return {}

    async def close(self, call: Record) -> Record:
        if not self._pump.done():
            await self._client.__aexit__(None, None, None)
            await asyncio.wait_for(self._pump, TIMEOUT)
        return {}


if __name__ == "__main__":
    asyncio.run(serve(AiomqttClient))
