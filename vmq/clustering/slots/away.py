"""Clients without a connection: since when, and when their sessions expire.

And those whose queues the disk does not give: that costs their sessions and nobody else, as long as it lasts.
"""

from collections.abc import Callable, Container
from typing import Final

from mypy_extensions import i64

from vmq.clustering.messages.fronts import Attach
from vmq.clustering.slots.cold import ALL
from vmq.clustering.slots.here import LocalNode
from vmq.clustering.slots.owned import OwnedSlot
from vmq.clustering.slots.state import SlotState
from vmq.clustering.slots.subscribers import Subscribers
from vmq.clustering.slots.words import Dot
from vmq_cluster.errors import StorageError

#: Connections with newer ones that are remembered: more than there are while a frame of their fronts waits.
_REPLACED: Final = 64
#: Milliseconds until a client without a session is forgotten: a front that learns late that it has gone may ask anew.
FORGOTTEN_AFTER: Final = 600_000


class AwayClients:
    """The clients of one slot that are not connected, for its owner."""

    def __init__(self, owned: OwnedSlot) -> None:
        self._owned = owned
        self._here = owned.here
        self._state = owned.state
        #: Since when sessions have no connection, as far as this owner knows, by the agreed time. Where they expire, it
        #: is in the registers that this owner writes, too.
        self.left: dict[str, int] = {}
        #: The last connections, of all clients, that have had a newer one in this lineage: a front asks until it hears
        #: an answer, and what it has asked again may come behind what another asks for the newer one.
        self.replaced: dict[int, None] = {}

    def replace(self, connection: int) -> None:
        """Its client has a newer one."""
        self.replaced[connection] = None
        if len(self.replaced) > _REPLACED:
            del self.replaced[next(iter(self.replaced))]

    def came(self, client: str) -> None:
        """A client is connected."""
        self.left.pop(client, None)
        self._state.registers[client].left = 0

    def went(self, client: str) -> None:
        """It is not any more."""
        since = self.left.setdefault(client, self._here.agreed())
        register = self._state.registers[client]
        is_writer = register.lineage == self._owned.view.lineage
        if self._here.limits.all.expiry and register.session and is_writer:
            register.left = since
            self._state.touch(client)

    def count(self, present: Container[str]) -> int:
        """How many sessions there are whose clients are not `present`."""
        found: i64 = 0
        for client, register in self._state.registers.items():
            if register.session and client not in present:
                found += 1
        return found

    def _end(self, client: str, subscribers: Subscribers) -> None:
        """A session expires; one whose queue the disk does not give does so another time.

        What a share group chose it for, which is in memory, goes to another member, if there is one.
        """
        state = self._state
        if client not in state.shared:
            try:
                state.drop_queue(client)
            except StorageError:
                return
        for dot in list(state.shared.get(client, ())):
            if not subscribers.groups.has_another(state.messages[dot].group, client):
                state.done(client, dot)
        subscribers.end(client)
        self._here.effects.expired.append(client)

    def expire(self, subscribers: Subscribers, present: Container[str]) -> None:
        """Ends what was to be there only for a while, and forgets clients of whom nobody has anything.

        Those who are `present` have a connection, or are about to.
        """
        limits, state = self._here.limits.all, self._state
        subscribers.expire()
        now = self._here.agreed()
        has_all = self._owned.has_all_forks()
        for client, register in list(state.registers.items()):
            if client in present:
                continue
            left = self.left.setdefault(client, register.left or now)
            if register.session and 0 < limits.expiry <= now - left:
                self._end(client, subscribers)
            is_used = register.session or state.waiting(client) > 0
            since = max(register.ended, register.attached_at)
            if has_all and not is_used and now - since > FORGOTTEN_AFTER:
                state.forget(client)
                del self.left[client]


class UnreadQueues:
    """Those of one slot, for its owner: told once (`Effects.unread`), and tried again with each heartbeat."""

    def __init__(self, here: LocalNode, state: SlotState) -> None:
        self._here = here
        self._state = state
        self.clients: dict[str, None] = {}

    def load(self, client: str, most: int) -> bool:
        """Has so much of a queue in memory, as `ColdQueues.load`; False: the disk does not give it."""
        return self._reads(client, lambda: self._state.load(client, most))

    def _reads(self, client: str, read: Callable[[], object]) -> bool:
        try:
            read()
        except StorageError as error:
            if client not in self.clients:
                self.clients[client] = None
                self._here.effects.unread.append((client, str(error)))
            return False
        return self._succeeded(client)

    def _succeeded(self, client: str) -> bool:
        if client in self.clients:
            del self.clients[client]
            self._here.effects.unread.append((client, ""))
        return True

    def prepare(self, asked: Attach, is_new: bool) -> bool:
        """Whether a connection can be attached: what is needed of its client's queue for that is in memory.

        Of a session that its connection ends nothing waits any more.
        """
        client = asked.client
        if client not in self._state.cold:
            return self._succeeded(client)
        if asked.is_clean and is_new:
            return self._reads(client, lambda: self._state.drop_queue(client))
        window = self._state.registers[client].window
        if not self.load(client, len(window) + self._here.ahead):
            return False
        dots: list[Dot] = [*asked.done, *[each.dot for each in asked.table]]
        dots += [each.dot for each in window.values()]
        if any(self._state.is_cold(client, dot) for dot in dots):
            return self.load(client, ALL)
        return True
