"""The call sites of hooks: to listen at them, and to pass them all."""

from collections.abc import Callable
from typing import Any

from vmq_hooks import Message, Peer, Refuse, SubscriberId, Subscription

from tests.support import wire as mqtt
from tests.vmq.support import Client, House
from vmq.core.hook_sites import Pending

SITES = (
    *("auth_on_register", "on_register", "auth_on_publish", "on_publish", "auth_on_subscribe"),
    *("on_subscribe", "auth_on_unsubscribe", "on_unsubscribe", "on_topic_unsubscribed"),
    *("on_deliver", "on_acked", "on_offline_message", "on_message_drop"),
    *("on_client_wakeup", "on_client_offline"),
    *("on_client_gone", "on_session_expired"),
)

Call = tuple[Any, ...]


def listen(house: House, *sites: str, **answers: Callable[..., Any]) -> list[Call]:
    """Sets these sites, and those with an answer; the list that their calls go into, the site's name in front."""
    calls: list[Call] = []

    def listener(site: str) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            calls.append((site, *flat(arguments)))
            return answers[site](*arguments) if site in answers else None

        return call

    for site in (*sites, *answers):
        setattr(house.core.hooks, site, listener(site))
    house.core.hooks.resolve()
    return calls


def flat(arguments: Call) -> list[Any]:
    """What a hook was told, as plain values."""
    found: list[Any] = []
    for each in arguments:
        if isinstance(each, SubscriberId | Peer):
            found.append(str(each))
        elif isinstance(each, Message):
            found.extend((each.qos, each.topic, each.payload, each.retain))
        elif isinstance(each, list):
            found.append(
                [(s.topic_filter, s.qos) if isinstance(s, Subscription) else s for s in each]
            )
        else:
            found.append(each)
    return found


def later_verdicts() -> tuple[list[Pending], Callable[..., Pending]]:
    """Verdicts that come when the test says so, and what gives another one of them."""
    pending: list[Pending] = []

    def later(*_arguments: object) -> Pending:
        pending.append(Pending(lambda: None))
        return pending[-1]

    return pending, later


def refuse(*_arguments: object) -> Refuse:
    return Refuse("not you")


def everything(house: House) -> list[bytes]:
    """A scene that passes every call site; what its two clients were sent."""
    house.options.max_offline_messages = 1
    subscriber = Client(house, anonymous=house.core.hooks.auth_on_register is None)
    subscriber.send(mqtt.connect_packet("s", clean=False, username="u", password=b"p"))
    subscriber.send(mqtt.subscribe_packet(1, ("t", 1), ("u", 0)))
    publisher = house.client("p")
    publisher.send(mqtt.publish_packet("t", b"0"))
    publisher.send(mqtt.publish_packet("t", b"1", qos=1, packet_id=1))
    subscriber.send(mqtt.puback_packet(1))
    subscriber.send(mqtt.unsubscribe_packet(2, "u"))
    sent = [subscriber.take_bytes()]
    subscriber.lose()
    for number in (2, 3):
        publisher.send(mqtt.publish_packet("t", b"%d" % number, qos=1, packet_id=number))
    sent.append(publisher.take_bytes())
    publisher.disconnect()
    house.options.persistent_client_expiration = 60.0
    house.pass_time(61)
    house.registry.expire()
    return sent


def unavailable(*_arguments: object) -> Refuse:
    """Nobody can decide now."""
    return Refuse("too busy", unavailable=True)
