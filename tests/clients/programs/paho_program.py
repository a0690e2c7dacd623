"""Drives paho-mqtt (its threaded loop) on orders from standard input."""

import threading
from typing import Any

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from tests.clients.programs import lines

TIMEOUT = 60.0
PROTOCOLS = {3: MQTTProtocolVersion.MQTTv31, 4: MQTTProtocolVersion.MQTTv311}


class PahoClient:
    """One paho client with its network thread; the calls below block until they are answered."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._client: mqtt.Client
        self._changed = threading.Condition()
        self._connack: lines.Record | None = None
        self._granted: dict[int, list[int]] = {}
        self._unsubscribed: set[int | None] = set()
        self._closed = False

    def open(self, call: lines.Record) -> lines.Record:
        scheme, host, port, path = lines.address(call)
        client = mqtt.Client(
            CallbackAPIVersion.VERSION2,
            client_id=call["id"],
            clean_session=call["clean"],
            protocol=PROTOCOLS[call["version"]],
            transport="websockets" if scheme == "ws" else "tcp",
            reconnect_on_failure=False,
        )
        self._client = client
        client.on_connect = self._on_connect
        client.on_subscribe = self._on_subscribe
        client.on_unsubscribe = self._on_unsubscribe
        client.on_message = self._on_message
        client.on_disconnect = self._on_disconnect
        if scheme == "ws":
            client.ws_set_options(path=path)
        if (will := call["will"]) is not None:
            client.will_set(will["topic"], will["payload"], will["qos"], will["retain"])
        client.connect(host, port, keepalive=call["keepalive"])
        client.loop_start()
        self._wait_for(lambda: self._connack is not None)
        assert self._connack is not None
        return self._connack

    def subscribe(self, call: lines.Record) -> lines.Record:
        _, mid = self._client.subscribe([(topic, qos) for topic, qos in call["filters"]])
        self._wait_for(lambda: mid in self._granted)
        return {"granted": self._granted.pop(mid or 0)}

    def unsubscribe(self, call: lines.Record) -> lines.Record:
        _, mid = self._client.unsubscribe(call["filters"])
        self._wait_for(lambda: mid in self._unsubscribed)
        return {}

    def publish(self, call: lines.Record) -> lines.Record:
        sent = [
            self._client.publish(call["topic"], payload, call["qos"], call["retain"])
            for payload in lines.payloads(call)
        ]
        for info in sent:
            info.wait_for_publish(TIMEOUT)
            if not info.is_published():
                raise TimeoutError("no acknowledgement")
        return {}

    def close(self, call: lines.Record) -> lines.Record:
        if not self._closed:
            self._client.disconnect()
            self._wait_for(lambda: self._closed)
        self._client.loop_stop()
        return {}

    def _wait_for(self, done: Any) -> None:
        with self._changed:
            if not self._changed.wait_for(lambda: done() or self._closed, TIMEOUT):
                raise TimeoutError("no answer from the broker")
            if not done():
                raise ConnectionError("connection closed")

    def _on_connect(
        self, client: mqtt.Client, data: Any, flags: mqtt.ConnectFlags, code: Any, properties: Any
    ) -> None:
        with self._changed:
            if not code.is_failure:
                self._connack = {"session_present": flags.session_present}
            self._changed.notify_all()

    def _on_subscribe(
        self, client: mqtt.Client, data: Any, mid: int, codes: list[Any], properties: Any
    ) -> None:
        with self._changed:
            self._granted[mid] = [code.value for code in codes]
            self._changed.notify_all()

    def _on_unsubscribe(
        self, client: mqtt.Client, data: Any, mid: int, codes: Any, properties: Any
    ) -> None:
        with self._changed:
            self._unsubscribed.add(mid)
            self._changed.notify_all()

    def _on_message(self, client: mqtt.Client, data: Any, message: mqtt.MQTTMessage) -> None:
        lines.emit_message(
            self.name,
            message.topic,
            bytes(message.payload),
            message.qos,
            message.retain,
            bool(message.dup),
        )

    def _on_disconnect(
        self, client: mqtt.Client, data: Any, flags: Any, code: Any, properties: Any
    ) -> None:
        lines.emit_closed(self.name)
        with self._changed:
            self._closed = True
            self._changed.notify_all()


def main() -> None:
    """Obey the orders one after another; each client's own thread goes on meanwhile."""
    clients: dict[str, PahoClient] = {}
    for call in lines.calls():
        name = call["client"]
        if call["op"] == "open":
            clients[name] = PahoClient(name)
        client = clients.pop(name) if call["op"] == "close" else clients[name]
        try:
            result = getattr(client, call["op"])(call)
        except Exception as error:  # noqa: BLE001 - whatever paho raises is an answer
            lines.emit({"call": call["call"], "error": repr(error)})
        else:
            lines.emit({"call": call["call"], "result": result})


if __name__ == "__main__":
    main()
