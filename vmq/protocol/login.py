"""A login: from a good CONNECT to its CONNACK (section 3.1.4).

What a CONNECT is checked for stands in `vmq.protocol.connect`. A login exists only while it is under way; the states
that it goes through are authenticating, taking over (`Registry.register`; from another node `core.claims`) and opening.
"""

import logging

from vmq_hooks.modifiers import RegisterModifiers
from vmq_hooks.types import Subscription
from vmq_hooks.verdicts import Refuse

from vmq.core.hook_sites import Answer, Pending
from vmq.core.ports import Placed
from vmq.core.states import ONLINE, OPENING, TAKING_OVER
from vmq.core.subscriber import OURS
from vmq.mqtt.encoder import connack
from vmq.mqtt.message import Message
from vmq.mqtt.packets import (
    ACCEPTED,
    LEVEL_3_1,
    REFUSED_CLIENT_ID,
    REFUSED_PROTOCOL_LEVEL,
    REFUSED_UNAVAILABLE,
    Connect,
    ConnectRefused,
)
from vmq.protocol.client import Client
from vmq.protocol.connect import (
    check_ban,
    check_client_id,
    check_flapping,
    check_load,
    check_owner,
    check_page,
    check_will,
    no_authentication,
    refuse,
    refuse_will,
    will_seen,
)
from vmq.protocol.refusals import SPLIT
from vmq.protocol.rights import STEP as ASKED_AT_ONCE
from vmq.protocol.rights import as_asked, lapse_of, take_back, tell_of_lost, wanted_of
from vmq.protocol.will import will_of
from vmq.store.store import DAMAGED

log = logging.getLogger("vmq.session")


def nothing() -> None:
    """Cancels what needs no cancelling."""


class ClientLogin:
    """A CONNECT on its way to its CONNACK. What refuses it is raised: `ConnectRefused`."""

    def __init__(self, client: Client, connect: Connect) -> None:
        self.client = client
        self.core = client.core
        self.output = client.output
        self.connect = connect
        self.will: Message | None = None
        #: Where the session is in a slot.
        self.placed: Placed | None = None
        #: Whether a session was there, and its subscriptions that plugins are asked about again: so many are done.
        self.present = False
        self.wanted: list[Subscription] = []
        self.done: int = 0

    def start(self) -> None:
        """Checks what needs no asking, then asks."""
        client, connect = self.client, self.connect
        client.client_id = connect.client_id
        if client.identity is not None:
            connect.username = client.identity
        client.username = connect.username
        if connect.level not in client.levels:
            raise ConnectRefused(
                "protocol level " + str(connect.level) + " is not allowed at this listener",
                REFUSED_PROTOCOL_LEVEL,
            )
        check_client_id(connect, self.core.options.max_client_id_size)
        if not client.client_id:
            client.client_id = client.new_id
        client.new_id = ""
        check_load(client.registry)
        self.check_ban()
        self.authenticate()

    def check_ban(self) -> None:
        if not self.core.bans.is_empty:
            client = self.client
            peer = self.output.seen_peer()
            check_ban(client.registry, self.connect.username, client.client_id, peer)

    def authenticate(self) -> None:
        """Asks the auth hook; without one only anonymous and certified clients may enter.

        A verified certificate needs no hook, though one that there is may refuse its name.
        """
        client, connect = self.client, self.connect
        if client.foreign:
            check_page(client.registry, client.foreign, connect, client.is_open())
        hook = client.hooks.auth_on_register
        if hook is None:
            if not client.anonymous and client.identity is None:
                raise no_authentication()
            self.authorise_will()
            return
        if client.anonymous and not client.anonymous_until_hook:
            self.authorise_will()
            return
        answer = client.ask(
            "auth_on_register",
            hook,
            self.output.seen_peer(),
            client.subscriber_id(),
            connect.username,
            connect.password,
            connect.clean_session,
        )
        if isinstance(answer, Pending):
            client.suspend(answer, self.on_register_verdict)
            client.charge(len(client.decoder.data))
        else:
            self.on_register_verdict(answer)

    def on_register_verdict(self, answer: Answer) -> None:
        if isinstance(answer, Refuse):
            raise refuse(answer, self.core.options.refusal_code)
        if isinstance(answer, RegisterModifiers):
            self.change(answer)
        self.authorise_will()

    def change(self, changes: RegisterModifiers) -> None:
        """What a plugin wants different for this session."""
        client, connect, core = self.client, self.connect, self.core
        if changes.username is not None:
            connect.username = changes.username
        if changes.clean_session is not None:
            connect.clean_session = changes.clean_session
        subscriber_id = changes.subscriber_id
        if subscriber_id is not None:
            client.client_id = subscriber_id.client_id
            client.seen_id = subscriber_id
            if subscriber_id.mountpoint != client.registry.mountpoint:
                client.registry = core.registries.find(subscriber_id.mountpoint)
        client.options = core.session_options.of(changes) or client.options
        self.output.limit(changes.max_message_rate, changes.max_connection_lifetime)

    def authorise_will(self) -> None:
        """Asks whether the client may publish its will, if it has one."""
        client, connect = self.client, self.connect
        check_will(connect, client.options)
        hook = client.hooks.auth_on_publish
        if hook is None or not connect.has_will:
            self.claim()
            return
        seen = will_seen(connect)
        answer = client.ask("auth_on_publish", hook, connect.username, client.subscriber_id(), seen)
        if isinstance(answer, Pending):
            client.suspend(answer, self.on_will_verdict)
        else:
            self.on_will_verdict(answer)

    def on_will_verdict(self, answer: Answer) -> None:
        if isinstance(answer, Refuse):
            raise refuse_will(answer, self.connect)
        # What a plugin changes about it is settled when it is published.
        self.claim()

    def claim(self) -> None:
        """The CONNECT is good: waits for the session if another node of the cluster has it."""
        client, connect = self.client, self.connect
        self.will = will_of(connect, client.client_id)
        self.check_ban()  # plugins may have named another user
        check_flapping(client.registry, connect.username, client.client_id)
        check_owner(client.registry, client.client_id, self.user())
        claims = self.core.claims
        pending = claims.claim(
            client.registry, client.client_id, connect.clean_session, self.user(), client.options
        )
        if pending is None:
            self.accept()
            return
        client.enter(TAKING_OVER)
        client.suspend(pending, self.on_claimed)

    def on_claimed(self, answer: Answer) -> None:
        if isinstance(answer, Refuse) and answer.unavailable:
            raise refuse(answer, self.core.options.refusal_code)
        if isinstance(answer, Refuse) and answer.bad_credentials:  # another user's session
            raise ConnectRefused(answer.reason, REFUSED_CLIENT_ID)
        if isinstance(answer, Placed):
            self.placed = answer
        if isinstance(answer, Refuse):
            # It was never accepted: no CONNACK says that somebody else has its place.
            self.output.close(answer.reason)
            return
        self.accept()

    def check_session(self) -> None:
        """Refuses who cannot have a session now."""
        client, core = self.client, self.core
        if not self.connect.clean_session and core.store is not None:
            store = core.store
            # Who has a session already may take what waits there: that makes room.
            is_new = client.client_id not in client.registry.subscribers
            if store.failing or (store.is_short and is_new):
                raise ConnectRefused(store.why_refused(), REFUSED_UNAVAILABLE)
        if not self.connect.clean_session and client.registry.refuses(client.client_id):
            raise ConnectRefused(DAMAGED, REFUSED_UNAVAILABLE)
        if client.is_cut_off(client.options.allow_register_during_netsplit):
            raise ConnectRefused(SPLIT + " (allow_register_during_netsplit)", REFUSED_UNAVAILABLE)
        # It may have come from another node meanwhile.
        check_owner(client.registry, client.client_id, self.user())

    def accept(self) -> None:
        """The session is the connection's; its subscriptions are asked about anew if it was there."""
        self.check_session()
        client, connect, registry = self.client, self.connect, self.client.registry
        client.enter(OPENING)
        client.level = connect.level
        client.username = connect.username
        client.keep_alive = connect.keep_alive
        client.started_at = self.core.wall_clock()
        user, placed = self.user(), self.placed
        before = registry.subscribers.get(client.client_id)
        is_others = before is not None and before.owner is not None and before.owner != user
        subscriber, self.present = registry.register(
            client.client_id, connect.clean_session or placed is not None, self.output, user
        )
        if placed is not None:
            self.present = placed.is_present
        client.subscriber = subscriber
        subscriber.queue.username = client.username
        subscriber.queue.options = client.options
        subscriber.queue.bridge = connect.bridge
        if self.present and is_others:
            subscriber.queue.drop_unwanted()  # what the user before had in flight, and does not subscribe to
        if self.present:
            self.wanted = wanted_of(subscriber)
        self.ask_anew()

    def part(self) -> list[Subscription]:
        """The next subscriptions to be asked about."""
        return self.wanted[self.done : self.done + ASKED_AT_ONCE]

    def ask_anew(self) -> None:
        """Asks about the subscriptions of a session that is resumed, before anything of it is sent."""
        client = self.client
        hook = client.hooks.auth_on_subscribe
        subscriber = client.subscriber
        assert subscriber is not None
        while hook is not None and self.done < len(self.wanted):
            name, who = client.username, client.subscriber_id()
            wanted = as_asked(subscriber, self.part())
            answer = client.ask("auth_on_subscribe", hook, name, who, wanted)
            if isinstance(answer, Pending):
                client.suspend(answer, self.on_asked_anew)
                return
            self.take_back(answer)
            if self.done < len(self.wanted) and self.core.call_later is not None:
                self.let_others()
                return
        self.begin()

    def on_asked_anew(self, answer: Answer) -> None:
        self.take_back(answer)
        self.ask_anew()

    def let_others(self) -> None:
        """Goes on in a later pass: others are served first."""
        pause = Pending(nothing)
        assert self.core.call_later is not None
        self.core.call_later(0.0, lambda: pause.finish(None))
        self.client.suspend(pause, lambda _: self.ask_anew())

    def take_back(self, answer: Answer) -> None:
        """Ends what the client may not subscribe to any more."""
        client = self.client
        subscriber = client.subscriber
        assert subscriber is not None
        if isinstance(answer, Refuse) and answer.unavailable:
            text = "subscriptions cannot be judged: " + answer.reason
            raise ConnectRefused(text, REFUSED_UNAVAILABLE)
        self.output.judge_again(lapse_of(answer))
        part = self.part()
        lost = take_back(client.registry, subscriber, part, answer)
        plugin: str = getattr(answer, "plugin", "")
        tell_of_lost(client.registry, subscriber, client.hooks, lost, plugin)
        self.done += len(part)

    def begin(self) -> None:
        """CONNACK, then what waits [MQTT-3.2.0-1]."""
        client, core, output = self.client, self.core, self.output
        subscriber = client.subscriber
        assert subscriber is not None
        client.enter(ONLINE)
        client.will = self.will
        if self.will is not None:
            core.wills.left(client)
        client.limit_packets()
        core.counters.mqtt_connack_sent[ACCEPTED] += 1
        # MQTT 3.1 has no session-present flag.
        output.add(connack(self.present and client.level != LEVEL_3_1, ACCEPTED))
        hook = client.hooks.on_register
        if hook is not None:
            who = client.subscriber_id()
            core.tell("on_register", hook, output.seen_peer(), who, client.username)
        subscriber.queue.go_online(output)
        wakeup = client.hooks.on_client_wakeup
        if wakeup is not None:
            core.tell("on_client_wakeup", wakeup, client.subscriber_id())
        if log.isEnabledFor(logging.DEBUG):
            name, values = client.registry.named(client.client_id)
            text = "connected " + name + " peer=%s clean=%d keep_alive=%d session_present=%d"
            log.debug(
                text,
                *values,
                output.describe(),
                self.connect.clean_session,
                client.keep_alive,
                self.present,
            )

    def user(self) -> str:
        """Whose a durable session is that this CONNECT begins or resumes."""
        return OURS if self.client.is_ours else self.connect.username or ""
