"""Ways to a broker other than plain TCP, for `Wire`."""

import socket
import ssl
from typing import Any

from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

from tests.support.byte_streams import SocketStream, dial
from tests.support.wire import TIMEOUT, Wire


def connect_tcp(url: str) -> socket.socket:
    host, _, port = url.partition("://")[2].partition("/")[0].rpartition(":")
    return dial((host, int(port)))


def connect_tls(url: str, context: ssl.SSLContext, host: str = "localhost") -> ssl.SSLSocket:
    sock = connect_tcp(url)
    try:
        return context.wrap_socket(sock, server_hostname=host)
    except BaseException:
        sock.close()
        raise


def tls_wire(url: str, context: ssl.SSLContext, host: str = "localhost") -> Wire:
    """An MQTT client over TLS that has sent nothing yet."""
    return Wire(SocketStream(connect_tls(url, context, host)))


def unix_wire(path: str) -> Wire:
    """An MQTT client over a Unix socket that has sent nothing yet."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.settimeout(TIMEOUT)
    try:
        sock.connect(path)
    except BaseException:
        sock.close()
        raise
    return Wire(SocketStream(sock))


def websocket_to(url: str, said: str = "", **options: Any) -> ClientConnection:
    """A WebSocket for MQTT by the library that the broker uses, too; `said` is its X-Forwarded-For."""
    headers = {"X-Forwarded-For": said} if said else None
    options |= {"additional_headers": headers, "proxy": None}
    return connect(url, subprotocols=[Subprotocol("mqtt")], **options)
