"""Lives of links: over what may lose, what a node says to another comes in order and whole, or the life ends.

Each end draws a number when it begins anew; a life is called by both. A frame that is missing ends it, at both ends:
whoever relied on what was said in it says it again in the next one. So nothing is kept to be sent again.

What is not lost comes in order, however late. So a greeting that is older than what its receiver knows ends nothing:
with seconds on the way, one end would begin anew for each greeting of the other that was under way.
"""

from collections import deque
from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import Any, Final

import msgspec

from vmq.clustering.messages.base import NodeMessage
from vmq.clustering.messages.fronts import SessionMessage
from vmq.clustering.messages.links import LinkFrame, LinkHello

#: Bytes of a frame, but for one message, and of what is sent to a peer in one turn.
FRAME_BYTES: Final = 256 * 1024
TURN_BYTES: Final = 4 * 1024 * 1024

_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final[msgspec.msgpack.Decoder[Any]] = msgspec.msgpack.Decoder(list[SessionMessage])


class PeerLink:
    """The link to one peer."""

    def __init__(self, mine: int) -> None:
        self.mine = mine
        self.theirs = 0
        #: 0: it is not whole.
        self.life = 0
        self.sent = 0
        self.expected = 0
        self.waiting: deque[bytes] = deque()


class LinkLives:
    """The links of one node, by peer.

    Args:
        send: sends a message that may get lost; False if it certainly is.
        draw: a number from 1 on that was never drawn before.
        linked: told of a peer and the life that begins.
        broken: told of a peer whose link breaks, and whether its process has ended.
        take: told of what a peer says.
    """

    def __init__(
        self,
        send: Callable[[str, LinkHello | LinkFrame], bool],
        draw: Callable[[], int],
        linked: Callable[[str, int], None],
        broken: Callable[[str, bool], None],
        take: Callable[[str, list[NodeMessage]], None],
    ) -> None:
        self._send = send
        self._draw = draw
        self._linked = linked
        self._broken = broken
        self._take = take
        self._links: dict[str, PeerLink] = {}

    # Peers

    def on_up(self, peer: str) -> None:
        """A peer can be reached."""
        if peer not in self._links:
            self._links[peer] = link = PeerLink(self._draw())
            self._greet(peer, link)

    def on_down(self, peer: str, is_dead: bool) -> None:
        """It cannot be reached any more; `is_dead`: its process has ended."""
        if self._links.pop(peer, None) is not None or is_dead:
            self._broken(peer, is_dead)

    def look(self) -> None:
        """Time has passed: greetings may have been lost."""
        for peer, link in self._links.items():
            if not link.life:
                self._greet(peer, link)

    def are_whole(self) -> bool:
        """Whether all of them have lives."""
        return all(link.life for link in self._links.values())

    def renew(self, peer: str) -> None:
        """What was said over a link counts no more: another begins."""
        link = self._links.get(peer)
        if link is not None and link.life:
            self._restart(peer, link)

    def _greet(self, peer: str, link: PeerLink) -> None:
        self._send(peer, LinkHello(link.mine, link.theirs, link.life != 0, link.sent))

    def _restart(self, peer: str, link: PeerLink) -> None:
        """Something was lost."""
        was_whole = link.life != 0
        link.mine, link.life, link.sent = self._draw(), 0, 0
        link.waiting.clear()
        if was_whole:
            self._broken(peer, False)
        self._greet(peer, link)

    # What peers say

    def on_hello(self, peer: str, hello: LinkHello) -> None:
        link = self._links.get(peer)
        if link is None:
            return
        knows, is_known = hello.theirs == link.mine, hello.mine == link.theirs
        link.theirs = hello.mine
        if link.life and not (knows and is_known):
            self._restart(peer, link)
        elif link.life and not hello.is_whole:
            self._greet(peer, link)  # when it said so it had not heard yet that it is whole
        elif link.life:
            if hello.sent != link.expected:
                self._restart(peer, link)  # frames that came before it was whole here were lost
        elif knows:
            link.life = life_of(link.mine, link.theirs)
            link.sent = link.expected = 0
            self._greet(peer, link)
            self._linked(peer, link.life)
            if hello.sent:
                self._restart(peer, link)
        elif not is_known:
            self._greet(peer, link)

    def on_frame(self, peer: str, frame: LinkFrame) -> None:
        """Takes what is in a frame.

        Raises:
            ValueError: it is nonsense; the fault is remote.
        """
        link = self._links.get(peer)
        if link is None or not link.life or frame.life != link.life:
            return  # of a life that is over, or not begun here: its sender finds out
        if frame.number != link.expected:
            self._restart(peer, link)
            return
        link.expected += 1
        messages = _DECODER.decode(frame.payload)
        for each in messages:
            each.check()
        self._take(peer, messages)

    # What this node says

    def send(self, peer: str, message: NodeMessage) -> None:
        """Sends a message in the life that there is; without one it is lost."""
        link = self._links.get(peer)
        if link is not None and link.life:
            link.waiting.append(_ENCODER.encode(message))

    def flush(self) -> bool:
        """The turn is over: sends what there is, and returns whether more waits for the next one."""
        has_more = False
        for peer, link in list(self._links.items()):
            left = TURN_BYTES
            while link.waiting and left > 0:
                size, count = _take_frame(link.waiting)
                parts = [link.waiting.popleft() for _ in range(count)]
                left -= size
                frame = LinkFrame(link.life, link.sent, _array(parts))
                link.sent += 1
                if not self._send(peer, frame):
                    self._restart(peer, link)
            has_more = has_more or bool(link.waiting)
        return has_more

    def life(self, peer: str) -> int:
        """The life of the link to a peer; 0: there is none."""
        link = self._links.get(peer)
        return 0 if link is None else link.life

    def waiting(self, peer: str) -> int:
        """Bytes that wait for a peer."""
        link = self._links.get(peer)
        return 0 if link is None else sum(map(len, link.waiting))


def life_of(one: int, other: int) -> int:
    """What both ends call a life."""
    raw = b"".join([each.to_bytes(8, "big") for each in sorted((one, other))])
    return int.from_bytes(blake2b(raw, digest_size=8).digest(), "big") >> 3 | 1


def _take_frame(waiting: Iterable[bytes]) -> tuple[int, int]:
    """Bytes and messages of the next frame."""
    size = count = 0
    for each in waiting:
        if count and size + len(each) > FRAME_BYTES:
            break
        size += len(each)
        count += 1
    return size, count


def _array(parts: list[bytes]) -> bytes:
    """Encoded messages as an encoded array."""
    return b"\xdd" + len(parts).to_bytes(4, "big") + b"".join(parts)
