"""The listening sockets: TCP over IPv4 and IPv6, and Unix sockets."""

import errno
import grp
import os
import pwd
import socket
import stat
from ipaddress import ip_address
from pathlib import Path


class AcceptedSocket(socket.socket):
    """An accepted connection's socket for asyncio's own loop, made without the enums that `socket.accept` makes."""

    __slots__ = ()

    def __init__(self, family: int, proto: int, file: int) -> None:
        socket.SocketType.__init__(self, family, socket.SOCK_STREAM, proto, file)
        self._io_refs = 0
        self._closed = False

    #: Plain numbers, as the event loop compares them.
    family = socket.SocketType.family  # type: ignore[assignment]
    type = socket.SocketType.type  # type: ignore[assignment]

    def begin(self) -> None:
        """An event loop is about to take it."""
        self.setblocking(False)

    def hand_over(self) -> None:
        """The transport closes it from now on."""


def bind(host: str, port: int, shared: bool = False) -> socket.socket:
    """A socket that has its port and does not listen yet; a shared one has it together with others of this user.

    Until it listens, whoever connects is refused. Another that has the port and does not listen either is noticed only
    when one of the two does.

    Raises:
        OSError: the address cannot be had.
    """
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, kind, protocol, _, address = found[0]
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.setblocking(False)
        sock.bind(address)
    except BaseException:
        sock.close()
        raise
    return sock


def try_address(host: str, port: int) -> None:
    """Looks whether this machine has an address, and this user the right to listen there; listens nowhere.

    That somebody else listens there now is no reason.

    Raises:
        OSError: it cannot be had.
    """
    try:
        bind(host, port).close()
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise


def address_of(host: str, port: int) -> tuple[str, int]:
    """Host and port that `bind` takes: `localhost` is an address there.

    Raises:
        OSError: there is no such host.
    """
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    address, number, *_ = found[0][4]
    return str(address), int(number)


def overlap(one: tuple[str, int], other: tuple[str, int]) -> bool:
    """Whether nobody can listen at both: they are one, or one stands for all addresses that the other is among."""
    first, second = ip_address(one[0]), ip_address(other[0])
    is_one = first == second or first.is_unspecified or second.is_unspecified
    return one[1] == other[1] and first.version == second.version and is_one


def reserve(host: str, port: int) -> socket.socket:
    """A socket that keeps a port for shared ones (`bind`) and does not listen itself.

    Nobody else may have the port when it is reserved: it is shared only from then on. Without that, a second broker of
    the same user would get a part of the clients of the first.

    Raises:
        OSError: the address cannot be had.
    """
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, kind, protocol, _, address = found[0]
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(address)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    except BaseException:
        sock.close()
        raise
    return sock


class NoSuchOwner(OSError):
    """There is no user or group whom a Unix socket is to belong to."""


def try_unix(path: str, owner: str | None) -> None:
    """Looks whether there can be a Unix socket of this path and owner; makes none.

    Raises:
        OSError: there cannot.
    """
    folder = Path(path).parent
    if not folder.is_dir():
        raise OSError(errno.ENOENT, f"there is no folder {folder.absolute()}")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise OSError(errno.EACCES, f"nothing may be written into {folder.absolute()}")
    _stands_there(path)
    if owner is not None:
        _ids(owner)


def _stands_there(path: str) -> bool:
    """Whether there is a socket of this path.

    Raises:
        OSError: there is something else.
    """
    try:
        if not stat.S_ISSOCK(Path(path).lstat().st_mode):
            raise OSError(errno.EEXIST, "a file that is no socket is in the way")
    except FileNotFoundError:
        return False
    return True


def bind_unix(path: str, mode: int, owner: str | None) -> socket.socket:
    """A Unix socket that does not listen yet; one that a dead process has left is replaced.

    Raises:
        OSError: the path cannot be had: something listens there, or it is no socket.
    """
    _remove_dead(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        # Nobody may connect before the permissions are those that were asked for.
        before = os.umask(0o777)
        try:
            sock.bind(path)
        finally:
            os.umask(before)
        if owner is not None:
            os.chown(path, *_ids(owner))
        Path(path).chmod(mode)
    except BaseException:
        sock.close()
        raise
    return sock


def remove_unix(path: str) -> None:
    """Removes the file of a closed socket."""
    Path(path).unlink(missing_ok=True)


def _remove_dead(path: str) -> None:
    if not _stands_there(path):
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            Path(path).unlink(missing_ok=True)
            return
        except BlockingIOError:
            pass  # alive, with a full queue
    raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))


def _ids(owner: str) -> tuple[int, int]:
    user, _, group = owner.partition(":")
    try:
        uid = int(user) if user.isdigit() else pwd.getpwnam(user).pw_uid
        gid = -1
        if group:
            gid = int(group) if group.isdigit() else grp.getgrnam(group).gr_gid
    except KeyError:
        raise NoSuchOwner(errno.EINVAL, f"there is no such user or group: {owner}") from None
    return uid, gid
