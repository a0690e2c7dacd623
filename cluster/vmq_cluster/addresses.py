"""Where nodes listen, and the key that a cluster shares.

Without a key the link only works where nobody else can listen in: on loopback, and between processes of one machine.
"""

import ipaddress

import zmq

from vmq_cluster.errors import ClusterError


def generate_key() -> str:
    """A new cluster key, for the configuration of all nodes."""
    _, secret = zmq.curve_keypair()
    return secret.decode()


def check_key(key: str) -> bytes:
    """The public half of a cluster key.

    Raises:
        ClusterError: it is none.
    """
    try:
        return zmq.curve_public(key.encode())
    except (ValueError, zmq.ZMQError, UnicodeEncodeError):
        raise ClusterError("this is no cluster key, which has 40 characters of Z85") from None


def is_private(address: str) -> bool:
    """Whether nobody outside this machine can listen in on an address."""
    scheme, _, rest = address.partition("://")
    if scheme != "tcp":
        return scheme == "ipc"
    host = rest.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def check_advertised(address: str) -> str:
    """An address that others can use.

    Raises:
        ClusterError: it stands for all addresses of this machine.
    """
    if address.startswith(("tcp://0.0.0.0:", "tcp://[::]:")):
        raise ClusterError(f"{address} is no address for others: say which to advertise")
    return address


def check_address(address: str, key: str | None) -> None:
    """Looks at an address before it is used.

    Raises:
        ClusterError: it is none, or is not to be used without a key.
    """
    scheme, separator, rest = address.partition("://")
    host, colon, port = rest.rpartition(":")
    is_port = port.isascii() and port.isdigit()
    is_tcp = scheme == "tcp" and colon == ":" and _is_host(host) and is_port
    if not separator or "\0" in rest or not (is_tcp or (scheme == "ipc" and rest)):
        raise ClusterError(f"{address!r} is no address; accepted: tcp://HOST:PORT, ipc://PATH")
    if is_tcp and (len(port) > 5 or int(port) > 65_535):
        raise ClusterError(f"{address}: there is no port {port}; accepted: up to 65535")
    if key is None and not is_private(address):
        raise ClusterError(
            f"{address} needs a cluster key (cluster.key_file; `vmq cluster keygen` makes one): without one nodes link "
            "over loopback and ipc only"
        )


def _is_host(host: str) -> bool:
    """Whether a name can be looked up: what none can be, no resolver bears."""
    try:
        return host.encode("idna") != b""
    except UnicodeError:
        return False
