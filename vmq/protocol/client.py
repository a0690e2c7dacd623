"""What one connection knows of its client, and how it waits for a verdict."""

import logging
from collections.abc import Callable
from typing import Final

from vmq_hooks.types import SubscriberId
from vmq_hooks.verdicts import Refuse

from vmq.core.context import CoreOptions
from vmq.core.hook_sites import Answer, Hooks, Pending
from vmq.core.output import VERDICT, Output
from vmq.core.queue import Queue
from vmq.core.registry import Registry
from vmq.core.source import Source
from vmq.core.states import (
    AUTHENTICATING,
    BROKEN,
    FAILED,
    ONLINE,
    OVERSIZED,
    REFUSED,
    STATES,
    TAKING_OVER,
    WAITING,
    may_follow,
)
from vmq.core.subscriber import Subscriber
from vmq.mqtt.decoder import Decoder
from vmq.mqtt.encoder import connack
from vmq.mqtt.message import Message
from vmq.mqtt.packets import (
    LEVEL_3_1,
    LEVEL_3_1_1,
    REFUSED_UNAVAILABLE,
    ConnectRefused,
    PacketTooLarge,
    ProtocolError,
)
from vmq.store.store import StoreError

log = logging.getLogger("vmq.session")

#: Levels of MQTT that a session can speak.
ALL_LEVELS: Final = (LEVEL_3_1, LEVEL_3_1_1)


class Client(Source):
    """One connection's client: who it is, what it may, and what of it waits.

    Where its connection stands is the `state` of its output alone. The booleans here are not moments but set up with
    it: `anonymous` and `anonymous_until_hook` by its listener, `is_ours` by the broker's own process.
    """

    def __init__(self, registry: Registry, output: Output, anonymous: bool, new_id: str) -> None:
        """`anonymous`: clients need no auth hook here. `new_id` is for a client that has no id."""
        super().__init__(output)
        self.registry = registry
        self.core = registry.core
        self.decoder = Decoder(registry.core.options.max_connect_size)
        self.decoder.before_connect = True
        #: None until CONNECT was accepted.
        self.subscriber: Subscriber | None = None
        self.username: str | None = None
        self.level: int = LEVEL_3_1_1
        #: The hooks for clients of this listener.
        self.hooks: Hooks = registry.core.hooks
        #: The broker's options, or what a plugin made of them for this session.
        self.options: CoreOptions = registry.core.options
        self.seen_id: SubscriberId | None = None
        #: A client of the broker's own process, which goes on during a netsplit.
        self.is_ours = False
        self.anonymous = anonymous
        #: `anonymous` holds only while no plugin knows clients.
        self.anonymous_until_hook = False
        self.new_id = new_id
        #: The protocol levels that the listener serves.
        self.levels: tuple[int, ...] = ALL_LEVELS
        #: The name in the client's verified certificate, where that is to be its user name.
        self.identity: str | None = None
        #: Why the web page whose script this is may not come in without credentials; "" if it may, or is none.
        self.foreign = ""
        #: In seconds; 0: it may be silent for ever.
        self.keep_alive: int = 0
        #: When its CONNECT had come, by the core's clock, and when it was accepted, in seconds of wall clock time.
        self.connect_at: float = 0.0
        self.started_at: float = 0.0
        self.will: Message | None = None
        self.refused: ConnectRefused | None = None
        #: The verdict that is awaited, the one that has come, and what goes on with it.
        self.pending: Pending | None = None
        self.answer: Answer = None
        self.proceed: Callable[[Answer], None] | None = None

    def enter(self, state: int) -> None:
        """The connection goes on to another state.

        Raises:
            AssertionError: it cannot follow the present one; a defect of ours.
        """
        output = self.output
        if not may_follow(output.state, state):
            raise AssertionError(STATES[output.state].name + " -> " + STATES[state].name)
        output.state = state

    def subscriber_id(self) -> SubscriberId:
        """Who this is to plugins."""
        seen = self.seen_id
        if seen is None:
            self.seen_id = seen = SubscriberId(self.client_id, self.registry.mountpoint)
        return seen

    def ask(self, name: str, hook: "Callable[..., Answer]", *arguments: object) -> Answer:
        """What a call site answers. One that fails, which is a defect of whoever set it, refuses."""
        try:
            return hook(*arguments)
        except Exception as error:  # noqa: BLE001 - contained, whatever it is
            self.core.hook_failed(name, error)
            return Refuse(name + " failed", unavailable=True)

    # Verdicts that come later

    def suspend(self, pending: Pending, proceed: "Callable[[Answer], None]") -> None:
        """Handles nothing more until the verdict is there; `proceed` goes on with it.

        A client whose CONNECT waits is read all the same, until more comes: whoever is not read could go away unseen,
        and be let in in the end.
        """
        self.pending = pending
        self.proceed = proceed
        pending.then = self.on_verdict
        state = self.output.state
        if state == ONLINE:
            self.enter(WAITING)
        if state in (AUTHENTICATING, TAKING_OVER):
            self.output.resume_from(VERDICT)
        else:
            self.output.pause_for(VERDICT)

    def on_verdict(self, answer: Answer) -> None:
        """The verdict is there: the connection goes on, in a pass of its own."""
        self.pending = None
        self.answer = answer
        self.output.go_on()

    def throttle(self, milliseconds: float) -> None:
        """Handles nothing more for so long."""
        core = self.core
        if milliseconds > 0 and core.call_later is not None and self.output.state == ONLINE:
            self.enter(WAITING)
            self.output.pause_for(VERDICT)
            core.call_later(milliseconds / 1000, self.output.go_on)

    def is_open(self) -> bool:
        """Whether clients are let in now who bring no credentials, or those of their certificate."""
        is_anonymous = self.hooks.auth_on_register is None or not self.anonymous_until_hook
        return self.identity is not None or (self.anonymous and is_anonymous)

    def is_cut_off(self, allowed: bool) -> bool:
        """Whether a member of the cluster cannot be reached, and the client may not go on meanwhile."""
        return self.core.cluster_is_split and not allowed and not self.is_ours

    def policy(self) -> str:
        return self.options.shared_subscription_policy

    def queue_of(self) -> Queue:
        subscriber = self.subscriber
        assert subscriber is not None
        return subscriber.queue

    def charge(self, size: int) -> None:
        """Bytes wait in memory with a CONNECT."""
        pending = self.pending
        if pending is not None and pending.charge is not None:
            pending.charge(size)

    def fail(self, error: Exception) -> None:
        """What ends a connection: the peer's fault, a refusal, the store, or a defect of ours."""
        counters = self.core.counters
        if isinstance(error, ProtocolError):
            counters.protocol_errors += 1
            state = OVERSIZED if isinstance(error, PacketTooLarge) else BROKEN
            self.output.finish("protocol error: " + str(error), state)
        elif isinstance(error, ConnectRefused):
            counters.mqtt_connect_error += 1
            counters.mqtt_connack_sent[error.code] += 1
            self.refused = error
            self.output.add(connack(False, error.code))
            self.output.finish("refused: " + error.text, REFUSED)
        elif isinstance(error, StoreError):
            self.output.finish(str(error) + " [MQTT-4.8.0-2]", FAILED)
        else:
            # It must not reach other connections.
            log.error("internal error, client=%s", self.client_id, exc_info=error)
            self.output.finish("internal error", FAILED)

    def give_up(self) -> None:
        """The verdict on the CONNECT takes too long: the client had better come again."""
        self.core.counters.logins_put_off += 1
        self.fail(ConnectRefused("no verdict within login_timeout", REFUSED_UNAVAILABLE))

    def limit_packets(self) -> None:
        """Takes packets as large as the options allow an accepted client."""
        options = self.core.options
        self.decoder.limit(options.max_packet_size, options.max_control_packet_size)
