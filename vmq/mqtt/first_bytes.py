"""What a connection speaks that begins with bytes which its listener does not expect, so that the log can say it."""

from typing import Final

#: So many bytes are enough.
FIRST_BYTES: Final = 16

_HTTP: Final = tuple(
    method + b" "
    for method in (b"GET", b"HEAD", b"POST", b"PUT", b"DELETE", b"CONNECT", b"OPTIONS", b"PATCH")
)
_PROXY: Final = (b"PROXY ", b"\r\n\r\n\0\r\nQUIT\n")
_MQTT: Final = (b"\0\4MQTT", b"\0\6MQIsdp")


def protocol_of(data: bytes) -> str:
    """The protocol of a connection's first bytes: TLS, HTTP, MQTT, a header of the PROXY protocol; "" for any other."""
    if data.startswith(b"\x16\3"):
        return "TLS"
    if data.startswith(_HTTP):
        return "HTTP"
    if data.startswith(_PROXY):
        return "a PROXY header"
    if data.startswith(b"\x10") and any(each in data[:13] for each in _MQTT):
        return "MQTT"
    return ""
