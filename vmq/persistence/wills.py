"""Wills of connected clients, for the next start: a broker that is killed publishes them then (section 3.1.2.5).

A node of a cluster does so too, with those that no other node has published: `vmq.clustering.node.left_wills`.

Two files of lines in the data folder: a will when its client connects, its number when the connection is over. The
operating system has a line at once. The files stay short without a pause: when the newer one has grown it takes the
older one's place, and with each line that is written from then on two wills move over into a new one.
"""

import asyncio
import errno
import logging
import os
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec

from vmq.core.context import Core
from vmq.core.ports import Wills
from vmq.core.registry import Registry
from vmq.mqtt.message import Message, Sourced
from vmq.persistence.group_commit import Committer
from vmq.protocol.publish import Publisher
from vmq.protocol.will_publish import publish_will

log = logging.getLogger("vmq.session")

#: Lines that the newer file has at least before it takes the older one's place.
LEAST: Final = 1000


class LeftWill(msgspec.Struct, frozen=True, array_like=True):
    """The will of a client that was connected; `number` is that of the connection."""

    number: int
    mountpoint: str
    client_id: str
    username: str | None
    topic: bytes
    payload: bytes
    qos: int
    retain: bool

    def client(self, registry: Registry) -> Publisher:
        """Who left it; the topic tree is that of the mountpoint."""
        will = (self.topic, self.payload, self.qos, self.retain)
        return absent_client(registry, self.client_id, self.username, will)


def absent_client(
    registry: Registry,
    client_id: str,
    username: str | None,
    will: tuple[bytes, bytes, int, bool],
) -> Publisher:
    """A client whose broker, or node, has ended; of its will the topic, the payload, the QoS, and RETAIN."""
    client = Publisher(registry, registry.core.outbox.nowhere, False, "")
    client.client_id = client_id
    client.username = username
    is_retained = will[-1]
    client.will = Sourced(*will, client_id, username) if is_retained else Message(*will)
    return client


def publish_left(client: Publisher) -> None:
    """Publishes the will of an `absent_client`: with the rights that the client has now."""
    assert client.will is not None
    try:
        publish_will(client, client.will)
    except Exception:  # a plugin's, or a defect: the others' wills must not pay for it
        log.exception("internal error at the will of client=%s", client.client_id)


async def publish_all_left(clients: Sequence[Publisher], core: Core, committer: Committer) -> None:
    """Publishes the wills of `absent_client`s; returns when what became of them is stored."""
    for client in clients:
        publish_left(client)
    await wills_settled(core)
    core.outbox.flush()
    await committer.finish_all()
    log.info("settled wills of clients that were connected when the broker ended: %d", len(clients))


async def wills_settled(core: Core) -> None:
    """Returns when no plugin is asked about a will any more; each has its deadline."""
    while core.awaited_wills:  # noqa: ASYNC110 - the core knows no loop
        await asyncio.sleep(0.01)


class StoredWills(Wills):
    """The wills of this broker's clients.

    Args:
        folder: the data folder.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._newer, self._older = folder / "wills", folder / "wills.old"
        self._number = 0
        #: The clients whose lines are in the newer file, and those whose lines are in the older one alone.
        self._clients: dict[Publisher, int] = {}
        self._to_move: dict[Publisher, int] = {}
        self._file: int | None = None
        self._lines = 0
        #: What comes before the next line: where the last one could not be written, or was cut, it begins anew.
        self._seam = b""

    def left_over(self) -> list[LeftWill]:
        """What the broker that had the folder before did not come to publish, in the order in which clients connected.

        Raises:
            OSError: a file cannot be read.
        """
        found: dict[int, LeftWill] = {}
        for path in (self._older, self._newer):
            for line in path.read_bytes().splitlines() if path.exists() else ():
                try:
                    will = msgspec.json.decode(line, type=LeftWill | int)
                except msgspec.DecodeError:
                    continue  # the machine lost its power while it was written
                if isinstance(will, int):
                    found.pop(will, None)
                else:
                    found[will.number] = will
        return [found[number] for number in sorted(found)]

    def strike(self, usernames: Collection[str]) -> None:
        """None of these users' is left over; before `begin` and `resume`.

        Raises:
            OSError: a file cannot be read or written.
        """
        left = self.left_over() if usernames else []
        gone = [each.number for each in left if each.username in usernames]
        if gone:
            with self._newer.open("ab") as file:  # a line that was cut takes none behind it along
                file.write(b"".join(b"\n%d\n" % number for number in gone))

    def begin(self) -> None:
        """Wills are kept from now on, and none is left over. Raises `OSError`: a file cannot be written."""
        self._open(os.O_TRUNC)

    def resume(self, left: Mapping[Publisher, int], number: int) -> None:
        """Wills are kept from now on beside those that are left over, until these are `over`.

        Args:
            left: the clients that had them, as `absent_client`, with the numbers of the connections.
            number: which those of the connections to come exceed.

        Raises:
            OSError: a file cannot be read or written.
        """
        self._to_move = dict(left)
        self._number = max(number, *left.values(), 0)
        if self._newer.exists():  # a line that was cut takes none behind it along
            os.truncate(self._newer, self._newer.read_bytes().rfind(b"\n") + 1)
        self._open()

    def number(self, client: Publisher) -> int:
        """The number of its connection; 0: it has no will here."""
        return self._clients.get(client) or self._to_move.get(client, 0)

    def forget(self) -> None:
        """No will is left over. Raises `OSError`: a file cannot be deleted."""
        for path in (self._older, self._newer):
            path.unlink(missing_ok=True)

    def close(self) -> None:
        """No client is connected any more."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
            if not self._clients and not self._to_move:
                with suppress(OSError):  # the next start finds that all of them are over
                    self.forget()

    def left(self, client: Publisher) -> None:
        """A client has connected with a will."""
        self._number += 1
        self._clients[client] = self._number
        self._write(self._line(client, self._number))

    def over(self, client: Publisher) -> None:
        """Its connection is over, and the will with it."""
        number = self._clients.pop(client, None) or self._to_move.pop(client, None)
        if number is not None:
            self._write(b"%d\n" % number)

    @staticmethod
    def _line(client: Publisher, number: int) -> bytes:
        will, registry = client.will, client.registry
        assert will is not None
        kept = LeftWill(
            number,
            registry.mountpoint,
            client.client_id,
            client.username,
            will.topic,
            will.payload,
            will.qos,
            will.retain,
        )
        return msgspec.json.encode(kept) + b"\n"

    def _open(self, also: int = 0) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | also
        self._file = os.open(self._newer, flags, 0o600)
        self._lines = 0

    def _write(self, line: bytes) -> None:
        moving = dict(islice(self._to_move.items(), 2))
        for client, number in moving.items():
            line += self._line(client, number)
        if self._file is None:
            return
        try:
            self._append(self._file, line)
        except OSError as error:
            if not self._seam:
                log.error("wills are not kept for the next start: %s", error)
            self._seam = b"\n"
            return
        if self._seam:
            self._seam = b""
            log.warning("wills are kept for the next start again")
        for client in moving:
            self._clients[client] = self._to_move.pop(client)
        self._lines += line.count(b"\n")
        if not self._to_move and self._lines > LEAST + 4 * len(self._clients):
            self._rotate(self._file)

    def _append(self, file: int, line: bytes) -> None:
        whole = self._seam + line
        if os.write(file, whole) < len(whole):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _rotate(self, file: int) -> None:
        """The newer file takes the older one's place; if that fails, it grows until the next attempt."""
        self._lines = 0
        try:
            with suppress(FileNotFoundError):  # the attempt before could not open a new one
                self._newer.replace(self._older)
            self._open(os.O_TRUNC)
        except OSError as error:
            log.warning("the file of wills grows: %s", error)
            return
        os.close(file)
        self._to_move, self._clients = self._clients, {}
