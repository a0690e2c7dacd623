"""Links between nodes with lives that both ends call by the same number, over a channel that may lose.

The machines of slots want of a link that it keeps the order and loses nothing until it breaks, and that both ends see
a break. Each end has a number for the link; the **life** of it is made of both. Who misses something, cannot send, or
hears that the peer is down, takes another number: to the other end that is a break, and the next life.

Pure: `send` says whether a message could be handed to the channel, `choose` gives numbers that were not there before.
"""

from collections.abc import Callable
from typing import Final

from vmq.clustering.messages.base import NodeMessage
from vmq.clustering.messages.slot_links import LinkBatch, LinkHello

#: Messages in one batch.
BATCH: Final = 1000
#: A number has so many bits, and so has a life.
NUMBER_BITS: Final = 62


class SlotLink:
    """The link to one peer, which is up."""

    def __init__(self, mine: int) -> None:
        self.mine = mine
        self.theirs = 0
        #: The peer knows this end's number.
        self.is_known = False
        self.life = 0
        #: Batches sent and taken in this life.
        self.sent = 0
        self.taken = 0


class LinkListener:
    """Who uses the links."""

    def on_hello(self, peer: str, store: int, host: str) -> None:
        """What store a peer has, and on which host it is; before `on_link`."""

    def on_link(self, peer: str, life: int) -> None:
        """There is a new link."""

    def on_break(self, peer: str) -> None:
        """It broke."""

    def on_message(self, peer: str, message: NodeMessage) -> None:
        """A message came over it."""


class SlotLinks:
    """The links of one node, by the names of its peers."""

    def __init__(
        self,
        store: int,
        host: str,
        listener: LinkListener,
        send: Callable[[str, LinkHello | LinkBatch], bool],
        choose: Callable[[int], int],
    ) -> None:
        self._store = store
        self._host = host
        self._listener = listener
        self._send = send
        self._choose = choose
        self._links: dict[str, SlotLink] = {}

    def peer_up(self, peer: str) -> None:
        """A member can be reached."""
        if peer not in self._links:
            self._links[peer] = SlotLink(self._number())
            self._greet(peer)

    def peer_down(self, peer: str) -> None:
        """It cannot any more."""
        link = self._links.pop(peer, None)
        if link is not None and link.life:
            self._listener.on_break(peer)

    def tick(self) -> None:
        """Time has passed: greetings may have been lost."""
        for peer, link in list(self._links.items()):
            if not link.life:
                self._greet(peer)

    def _number(self) -> int:
        return 1 + self._choose((1 << NUMBER_BITS) - 1)

    def _greet(self, peer: str) -> None:
        link = self._links[peer]
        self._send(peer, LinkHello(link.mine, link.theirs, self._store, self._host))

    def _break(self, peer: str) -> None:
        """From here: the peer hears another number."""
        self.peer_down(peer)
        self.peer_up(peer)

    def send(self, peer: str, messages: list[NodeMessage]) -> None:
        """Sends in order; what there is no link for is lost, as by a break."""
        for at in range(0, len(messages), BATCH):
            link = self._links.get(peer)
            if link is None or not link.life:
                return
            batch = LinkBatch(link.life, link.sent, messages[at : at + BATCH])  # type: ignore[arg-type]
            link.sent += 1
            if not self._send(peer, batch):
                self._break(peer)
                return

    def on_hello(self, peer: str, hello: LinkHello) -> None:
        """The peer's number, and whether it knows this end's."""
        self.peer_up(peer)
        link = self._links[peer]
        if hello.number != link.theirs:
            if link.life:
                self._links[peer] = link = SlotLink(self._number())
                link.theirs = hello.number
                self._listener.on_break(peer)
            link.theirs = hello.number
        link.is_known = hello.answers == link.mine
        if link.is_known and not link.life:
            self._listener.on_hello(peer, hello.store, hello.host)
            self._greet(peer)
            self._begin(peer, link)
        elif not link.is_known:
            self._greet(peer)

    def _begin(self, peer: str, link: SlotLink) -> None:
        link.life = 1 + (link.mine ^ link.theirs)
        self._listener.on_link(peer, link.life)

    def on_batch(self, peer: str, batch: LinkBatch) -> None:
        """Messages, if nothing is missing before them."""
        link = self._links.get(peer)
        if link is None or not link.life or batch.life != link.life:
            return
        if batch.index != link.taken:
            self._break(peer)
            return
        link.taken += 1
        for message in batch.messages:
            self._listener.on_message(peer, message)
