"""CONNECTs that wait for their verdict: those of users whose passwords were wrong first wait for a while.

Where too many bytes wait, the latest of the address that holds most is told to come again, so that no address
keeps others out. Which of those who wait is asked about first is for the plugin that computes (`vmq_hooks.turns`).
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final

import msgspec
from vmq_hooks import Peer, Refuse, SubscriberId

from vmq.core.context import Core
from vmq.core.hook_sites import Answer, Pending
from vmq.plugins.failures import Failures

#: Bytes of memory that a waiting client costs besides what it sent: connection, session, tasks of the chain.
#: Resident memory as measured with 5,000 of them waiting for vmq_passwd.
COST: Final = 16_384

Chain = Callable[[Peer, SubscriberId, str | None, bytes | None, bool], Answer]


class Logins:
    """The CONNECTs of one broker, whichever listener they come by.

    Args:
        core: for its options, its clock and its counters.
    """

    def __init__(self, core: Core) -> None:
        self.core = core
        self.failures = Failures()
        #: Bytes that wait, and how many.
        self.bytes = 0
        self.waiting = 0
        self._lines: dict[str, Line] = {}
        #: One that holds more than its share; it may be empty by now.
        self._heavy: Line | None = None

    def over(self, hook: str, site: Any) -> Any:
        """A hook's call site: that of auth_on_register by way of us."""
        if hook != "auth_on_register":
            return site

        def ask(
            peer: Peer,
            subscriber_id: SubscriberId,
            username: str | None,
            password: bytes | None,
            clean_session: bool,
        ) -> Answer:
            return self._ask(site, peer, (subscriber_id, username, password, clean_session))

        return ask

    def _ask(self, chain: Chain, peer: Peer, rest: tuple[Any, ...]) -> Answer:
        core = self.core
        network, username, password = peer.network, rest[1], rest[2]
        delay = 0.0
        if network:
            now = core.clock()
            failures = self.failures.of(network, now)
            if failures:
                peer = msgspec.structs.replace(peer, failures=failures)
            longest = core.options.failed_login_delay
            delay = self.failures.delay(network, username, longest, now)
        login = Login(self, chain, peer, rest)
        if delay > 0:
            core.counters.logins_delayed += 1
            login.timer = asyncio.get_running_loop().call_later(delay, login.ask)
        else:
            answer = login.begin()
            if not isinstance(answer, Pending):
                return answer
        login.grow(COST + 2 * (len(username or "") + len(password or b"")))
        return login.outer

    def note(self, peer: Peer, username: str | None, answer: Answer) -> None:
        """What became of a login."""
        is_wrong = isinstance(answer, Refuse) and answer.bad_credentials
        if is_wrong:
            self.core.counters.logins_failed += 1
        if not peer.network:
            return
        if is_wrong:
            self.failures.wrong(peer.network, username, self.core.clock())
        elif not isinstance(answer, Refuse):
            self.failures.right(peer.network, username)

    # Memory

    def grow(self, login: "Login", size: int) -> None:
        """A waiting login holds more; the latest of whoever holds most make room."""
        network = login.peer.network
        line = self._lines.get(network)
        if line is None:
            self._lines[network] = line = Line()
        if login not in line.logins:
            line.logins[login] = None
            self.waiting += 1
        login.size += size
        line.size += size
        self.bytes += size
        limit = self.core.options.max_login_bytes
        while limit and self.bytes > limit:
            newest = next(reversed(self._heaviest(line).logins))
            self.core.counters.logins_put_off += 1
            newest.put_off()

    def drop(self, login: "Login") -> None:
        """A login waits no more."""
        line = self._lines.get(login.peer.network)
        if line is None or login not in line.logins:
            return
        del line.logins[login]
        line.size -= login.size
        self.bytes -= login.size
        self.waiting -= 1
        if not line.logins:
            del self._lines[login.peer.network]

    def _heaviest(self, comer: "Line") -> "Line":
        """A line with no less than its share of all: that of who comes, that of before, or the longest."""
        share = self.bytes / len(self._lines)
        if comer.logins and comer.size >= share:
            return comer
        heavy = self._heavy
        if heavy is None or not heavy.logins or heavy.size < share:
            self._heavy = heavy = max(self._lines.values(), key=lambda each: each.size)
        return heavy


class Line:
    """Those who wait from one network, the latest last."""

    __slots__ = ("logins", "size")

    def __init__(self) -> None:
        self.logins: OrderedDict[Login, None] = OrderedDict()
        self.size = 0


class Login:
    """One CONNECT that waits, for its time or for its verdict."""

    __slots__ = (
        "_chain",
        "_inner",
        "_is_over",
        "_logins",
        "_rest",
        "outer",
        "peer",
        "size",
        "timer",
    )

    def __init__(self, logins: Logins, chain: Chain, peer: Peer, rest: tuple[Any, ...]) -> None:
        self._logins = logins
        self._chain = chain
        self._rest = rest
        self._inner: Pending | None = None
        self._is_over = False
        self.peer = peer
        self.size = 0
        self.timer: asyncio.TimerHandle | None = None
        self.outer = Pending(self.leave)
        self.outer.charge = self.grow

    def begin(self) -> Answer:
        """Asks the plugins; their answer, or Pending."""
        answer = self._chain(self.peer, *self._rest)
        if isinstance(answer, Pending):
            self._inner = answer
            answer.then = self._finish
        else:
            self._logins.note(self.peer, self._rest[1], answer)
        return answer

    def ask(self) -> None:
        """Its time has come."""
        self.timer = None
        answer = self.begin()
        if not isinstance(answer, Pending):
            self._answer(answer)

    def grow(self, size: int) -> None:
        """It holds so many bytes more."""
        if not self._is_over:
            self._logins.grow(self, size)

    def leave(self) -> None:
        """The client went away."""
        if self._inner is not None and self.peer.network:
            now = self._logins.core.clock()
            self._logins.failures.given_up(self.peer.network, self._rest[1], now)
        self._stop()

    def put_off(self) -> None:
        """Too much waits: this one is told to come again."""
        self._stop()
        refusal = Refuse("too many wait for their login (max_login_bytes)", unavailable=True)
        asyncio.get_running_loop().call_soon(self.outer.finish, refusal)

    def _stop(self) -> None:
        self._is_over = True
        self._logins.drop(self)
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        if self._inner is not None:
            self._inner.then = None
            self._inner.cancel()
            self._inner = None

    def _finish(self, answer: Answer) -> None:
        self._inner = None
        self._logins.note(self.peer, self._rest[1], answer)
        self._answer(answer)

    def _answer(self, answer: Answer) -> None:
        self._is_over = True
        self._logins.drop(self)
        self.outer.finish(answer)
