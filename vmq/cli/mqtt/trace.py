"""What `-d` shows: one line on stderr for each MQTT packet, in the words of the specification."""

import sys
from typing import Any


def show(client_id: str, direction: str, packet: Any) -> None:
    """Print one packet (of amqtt's classes) as sent or received."""
    print(f"client {client_id} {direction} {describe(packet)}", file=sys.stderr, flush=True)


def describe(packet: Any) -> str:
    """Name and fields of a packet, without the payload."""
    name = type(packet).__name__.removesuffix("Packet").upper()
    header, payload = packet.variable_header, packet.payload
    match name:
        case "CONNECT":
            fields = f"clean={int(header.clean_session_flag)} keepalive={header.keep_alive}"
        case "CONNACK":
            fields = f"code={header.return_code} session_present={header.session_parent}"
        case "PUBLISH":
            fields = (
                f"dup={int(packet.dup_flag)} qos={packet.qos} retain={int(packet.retain_flag)} "
                f"id={packet.packet_id or 0} topic={packet.topic_name!r} bytes={len(packet.data)}"
            )
        case "SUBSCRIBE" | "UNSUBSCRIBE":
            fields = f"id={header.packet_id} topics={payload.topics}"
        case "SUBACK":
            fields = f"id={header.packet_id} codes={payload.return_codes}"
        case _:
            fields = f"id={header.packet_id}" if hasattr(header, "packet_id") else ""
    return f"{name} {fields}".rstrip()
