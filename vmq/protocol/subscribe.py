"""The subscribing half of a session: what a client's SUBSCRIBE and UNSUBSCRIBE do (sections 3.8 and 3.10).

A packet may have tens of thousands of filters, and each may match all retained messages. So both go in steps, one a
pass; packets that come behind wait until the last is done. Retained messages go out from here, by
`vmq.protocol.retain_source`.
"""

import logging
from typing import Final

from vmq_hooks.types import REFUSED_QOS, Subscription
from vmq_hooks.verdicts import Refuse

from vmq.core.context import CoreOptions
from vmq.core.hook_sites import Answer, Hooks, Pending
from vmq.core.output import Output
from vmq.core.registry import Registry
from vmq.core.retained import RetainedWalk
from vmq.core.states import CLOSING, FAILED
from vmq.core.subscriber import Subscriber
from vmq.core.subscription_set import cost_of
from vmq.core.trie import Trie
from vmq.mqtt.decoder import Reader, next_filter, next_request, open_request
from vmq.mqtt.encoder import PACKET_IDS, UNSUBACK_HEAD, suback
from vmq.mqtt.packets import LEVEL_3_1, SUBSCRIBE, SUBSCRIPTION_FAILED
from vmq.mqtt.special import is_served
from vmq.mqtt.topics import split_shared
from vmq.protocol.publish import Publisher
from vmq.protocol.refusals import (
    SPLIT,
    reason_of,
    tell_of_split,
    tell_of_subscribe,
    tell_of_unsubscribe,
)
from vmq.protocol.retain_source import send_retained
from vmq.protocol.rights import lapse_of

log = logging.getLogger("vmq.session")

#: Filters of one step.
FILTERS_A_STEP: Final = 256
#: Nodes of retained topics that one step visits.
NODES_A_STEP: Final = 1024
#: What a filter, and a node, are beside a message for one queue in the work of a pass.
WORK_OF_FILTER: Final = 8
WORK_OF_NODE: Final = 2


class Request:
    """A SUBSCRIBE or UNSUBSCRIBE on its way."""

    def __init__(self, kind: int, packet_id: int, reader: Reader) -> None:
        self.kind = kind
        self.packet_id = packet_id
        self.reader = reader
        #: Where its first filter is.
        self.start = reader.position
        #: All of its filters are well-formed: it has an effect only then.
        self.is_checked = False
        #: Subscriptions may not be taken now.
        self.is_cut_off = False
        self.codes = bytearray()
        #: The QoS granted to each filter.
        self.granted: dict[str, int] = {}
        #: Filters whose retained messages are still to be sent, the next one last, and the walk over those of that.
        self.fresh: list[str] = []
        self.walk: RetainedWalk | None = None


class Subscribing(Publisher):
    """One connection's client as a publisher and a subscriber; `vmq.protocol.session.Session` is the whole of it."""

    def __init__(self, registry: Registry, output: Output, anonymous: bool, new_id: str) -> None:
        super().__init__(registry, output, anonymous, new_id)
        #: The request whose next step comes before any further packet.
        self.request: Request | None = None

    def begin_request(self, kind: int) -> None:
        """SUBSCRIBE or UNSUBSCRIBE: opens the present packet and does its first step."""
        decoder = self.decoder
        packet_id, reader = open_request(kind, decoder.data, decoder.body, decoder.end)
        self.request = Request(kind, packet_id, reader)
        self.step()

    def step(self) -> None:
        """Does the next step of the request."""
        request = self.request
        if request is None:
            return
        if request.fresh:
            self.send_retained(request)
        elif request.kind == SUBSCRIBE:
            self.step_subscribe(request)
        else:
            self.step_unsubscribe(request)

    def is_to_be_checked(self, request: Request) -> bool:
        """Whether filters that were read come again, or have to: the packet is longer than a step."""
        reader = request.reader
        if request.is_checked:
            return False
        if not reader.is_at_end():
            return True
        request.is_checked = True
        if reader.steps > 1:
            reader.position = request.start
            return True
        return False

    # SUBSCRIBE

    def step_subscribe(self, request: Request) -> None:
        reader = request.reader
        reader.steps += 1
        wanted: list[Subscription] = []
        while len(wanted) < FILTERS_A_STEP and not reader.is_at_end():
            topic_filter, qos = next_request(reader, self.level)
            wanted.append(Subscription(topic_filter, qos))
        self.core.work += WORK_OF_FILTER * len(wanted)
        if self.is_to_be_checked(request):
            return
        allowed = self.options.allow_subscribe_during_netsplit
        if request.is_cut_off or (not request.codes and self.is_cut_off(allowed)):
            self.refuse_subscribe(request, wanted)
            return
        hook = self.hooks.auth_on_subscribe
        if hook is None:
            self.grant(request, wanted, None)
            return
        answer = self.ask("auth_on_subscribe", hook, self.username, self.subscriber_id(), wanted)
        if isinstance(answer, Pending):
            self.suspend(answer, lambda later: self.grant(request, wanted, later))
        else:
            self.grant(request, wanted, answer)

    def grant(self, request: Request, wanted: list[Subscription], answer: Answer) -> None:
        """Goes by the verdict of plugins."""
        registry = self.registry
        granted = wanted
        self.output.judge_again(lapse_of(answer))
        if isinstance(answer, Refuse):
            self.core.counters.mqtt_subscribe_auth_error += 1
            granted = [Subscription(each.topic_filter, REFUSED_QOS) for each in wanted]
            tell_of_subscribe(registry, self.client_id, self.username, wanted, answer)
            if answer.unavailable:
                # A failure code would be final: hardly any client asks again on the same connection.
                text = "subscription refused: " + answer.reason + " [MQTT-4.8.0-2]"
                self.output.finish(text, FAILED)
                return
        elif isinstance(answer, list):
            granted = answer
            tell_of_subscribe(registry, self.client_id, self.username, wanted, answer)
        self.prepare(request, wanted, granted, 0)

    def prepare(
        self, request: Request, wanted: list[Subscription], granted: list[Subscription], first: int
    ) -> None:
        """Has services look up what they need to say yes or no, from a filter on; then goes on."""
        for index in range(first, len(granted)):
            topic_filter: str = granted[index].topic_filter
            if granted[index].qos > 2 or not is_served(topic_filter):
                continue
            pending = self.core.service_of(topic_filter).prepare(self, topic_filter)
            if pending is not None:
                following = index + 1
                self.suspend(pending, lambda _: self.prepare(request, wanted, granted, following))  # noqa: B023 - it returns
                return
        self.accept(request, wanted, granted)

    def accept(
        self, request: Request, wanted: list[Subscription], granted: list[Subscription]
    ) -> None:
        """Subscribes filter by filter (section 3.8.4)."""
        subscriber = self.subscriber
        assert subscriber is not None
        registry = self.registry
        accepted: list[Subscription] = []
        for index, each in enumerate(granted):
            topic_filter: str = each.topic_filter
            qos: int = each.qos
            if qos <= 2 and is_served(topic_filter):
                qos = self.core.service_of(topic_filter).grant(self, topic_filter, qos)
            # That a filter is repeated changes its code alone.
            if request.granted.get(topic_filter, REFUSED_QOS) != qos or qos > 2:
                if qos > 2 or not self.has_room(subscriber, topic_filter):
                    # An MQTT 3.1 client does not know the failure code.
                    asked: int = wanted[index].qos
                    request.codes.append(asked if self.level == LEVEL_3_1 else SUBSCRIPTION_FAILED)
                    continue
                asked_for: str = wanted[index].topic_filter
                changed = "" if asked_for == topic_filter else asked_for
                registry.subscribe(subscriber, topic_filter, qos, changed)
                request.granted[topic_filter] = qos
                accepted.append(each)
            request.codes.append(qos)
        if not request.reader.is_at_end():
            self.tell_subscribed(accepted)
            return
        if request.granted:
            filters = list(request.granted)
            pending = self.core.propagation.wait(registry, subscriber, filters)
            if pending is not None:
                self.suspend(pending, lambda _: self.answer_subscribe(request, accepted))
                return
            told = self.core.retained_listener
            told.on_subscribed(registry, subscriber, request.granted, self.judges())
        self.answer_subscribe(request, accepted)

    def has_room(self, subscriber: Subscriber, topic_filter: str) -> bool:
        """Whether the limits on subscriptions leave room for one more."""
        reason = limit_on(self.core.options, self.registry.trie, subscriber, topic_filter)
        if not reason:
            return True
        self.core.counters.subscriptions_refused += 1
        name, values = self.registry.named(self.client_id)
        text = "subscription refused " + name + ' filter="%s": %s is reached'
        log.warning(text, *values, topic_filter[:200], reason)
        return False

    def answer_subscribe(self, request: Request, accepted: list[Subscription]) -> None:
        """SUBACK, then the retained messages."""
        self.core.counters.mqtt_suback_sent += 1
        self.output.add(suback(request.packet_id, bytes(request.codes)))
        self.tell_subscribed(accepted)
        request.fresh = list(reversed(request.granted))
        self.send_retained(request)

    def judges(self) -> Hooks:
        """Whoever judges what it gets. Clients in the broker's own process have no hooks: all of its plugins do."""
        return self.core.hooks if self.is_ours else self.hooks

    def tell_subscribed(self, accepted: list[Subscription]) -> None:
        hook = self.hooks.on_subscribe
        if hook is not None and accepted:
            self.core.tell("on_subscribe", hook, self.username, self.subscriber_id(), accepted)

    def send_retained(self, request: Request) -> None:
        """Sends retained messages of the subscriptions that are new, so many topics at a time."""
        subscriber = self.subscriber
        assert subscriber is not None
        hooks = self.judges()
        fresh = request.fresh
        left = NODES_A_STEP
        while fresh and left > 0 and not self.output.closing:
            topic_filter = fresh[-1]
            walk = request.walk
            is_first = walk is None
            if topic_filter not in subscriber.subscriptions:  # it was revoked meanwhile
                walk = None
            elif walk is None:
                walk = self.registry.walk_retained(topic_filter)
            left -= 1
            if walk is not None:
                found = walk.take(left)
                left -= walk.visited
                qos = request.granted[topic_filter]
                if found or is_first:
                    send_retained(
                        self.registry, hooks, subscriber, topic_filter, found, qos, is_first
                    )
                if not walk.is_over():
                    request.walk = walk
                    continue
            request.walk = None
            fresh.pop()
        self.core.work += WORK_OF_NODE * (NODES_A_STEP - left)
        if not fresh:
            self.request = None

    def refuse_subscribe(self, request: Request, wanted: list[Subscription]) -> None:
        """Subscriptions may not be taken now; an MQTT 3.1 client knows no answer that says so."""
        counters = self.core.counters
        if not request.is_cut_off:
            request.is_cut_off = True
            counters.mqtt_subscribe_error += 1
            if self.level == LEVEL_3_1:
                text = SPLIT + " (allow_subscribe_during_netsplit) [MQTT-4.8.0-2]"
                self.output.finish(text, FAILED)
                return
            first = wanted[0].topic_filter
            tell_of_split(self.registry, self.client_id, "subscription refused", "filter", first)
        request.codes += bytes([SUBSCRIPTION_FAILED] * len(wanted))
        if request.reader.is_at_end():
            self.request = None
            counters.mqtt_suback_sent += 1
            self.output.add(suback(request.packet_id, bytes(request.codes)))

    # UNSUBSCRIBE

    def step_unsubscribe(self, request: Request) -> None:
        reader = request.reader
        reader.steps += 1
        filters: list[str] = []
        while len(filters) < FILTERS_A_STEP and not reader.is_at_end():
            filters.append(next_filter(reader))
        self.core.work += WORK_OF_FILTER * len(filters)
        if self.is_to_be_checked(request):
            return
        if self.is_cut_off(self.options.allow_unsubscribe_during_netsplit):
            self.core.counters.mqtt_unsubscribe_error += 1
            text = SPLIT + " (allow_unsubscribe_during_netsplit) [MQTT-4.8.0-2]"
            self.output.finish(text, FAILED)
            return
        allowed = self.hooks.auth_on_unsubscribe
        if allowed is None:
            self.rewrite_unsubscribe(request, filters)
            return
        answer = self.ask(
            "auth_on_unsubscribe", allowed, self.username, self.subscriber_id(), filters
        )
        if isinstance(answer, Pending):
            self.suspend(answer, lambda later: self.may_unsubscribe(request, filters, later))
        else:
            self.may_unsubscribe(request, filters, answer)

    def may_unsubscribe(self, request: Request, filters: list[str], answer: Answer) -> None:
        """Goes on with an UNSUBSCRIBE that a plugin allows. There is no answer to it that says no."""
        if isinstance(answer, Refuse):
            self.core.counters.mqtt_unsubscribe_error += 1
            tell_of_unsubscribe(self.registry, self.client_id, self.username, filters, answer)
            text = "unsubscribe refused: " + reason_of(answer) + " [MQTT-4.8.0-2]"
            self.output.finish(text, FAILED if answer.unavailable else CLOSING)
            return
        self.rewrite_unsubscribe(request, filters)

    def rewrite_unsubscribe(self, request: Request, filters: list[str]) -> None:
        hook = self.hooks.on_unsubscribe
        answer: Answer = None
        if hook is not None:
            answer = self.ask("on_unsubscribe", hook, self.username, self.subscriber_id(), filters)
        if isinstance(answer, Pending):
            self.suspend(answer, lambda later: self.revoke(request, filters, later))
        else:
            self.revoke(request, filters, answer)

    def revoke(self, request: Request, filters: list[str], answer: Answer) -> None:
        subscriber = self.subscriber
        assert subscriber is not None
        if isinstance(answer, list):
            filters = answer
        for topic_filter in filters:
            self.registry.unsubscribe(subscriber, topic_filter)
        if request.reader.is_at_end():
            self.request = None
            self.core.counters.mqtt_unsuback_sent += 1
            self.output.add(UNSUBACK_HEAD + PACKET_IDS[request.packet_id])
        told = self.hooks.on_topic_unsubscribed
        if told is not None:
            self.core.tell("on_topic_unsubscribed", told, self.subscriber_id(), filters)


def limit_on(
    options: CoreOptions, trie: Trie, subscriber: Subscriber | None, topic_filter: str
) -> str:
    """The name of the limit that one more subscription of a client would exceed; empty if there is none."""
    group, plain = split_shared(topic_filter)
    if subscriber is None or subscriber.find(topic_filter) is None:
        count = 0 if subscriber is None else len(subscriber.subscriptions)
        cost = cost_of(topic_filter, group) + (0 if subscriber is None else subscriber.cost)
        if 0 < options.max_subscriptions_per_client <= count:
            return "max_subscriptions_per_client"
        if 0 < options.max_subscription_bytes_per_client < cost:
            return "max_subscription_bytes_per_client"
        if 0 < options.max_subscription_bytes < trie.size_with(topic_filter):
            return "max_subscription_bytes"
    if 0 < options.topic_max_depth <= plain.count("/"):
        return "topic_max_depth"
    if 0 < options.topic_max_plus < plain.count("+"):
        return "topic_max_plus"
    return ""
