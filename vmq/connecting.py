"""What a CONNECT must pass before it is accepted: client id, load, authentication (section 3.1.4)."""

from vmq_hooks.types import Message as SeenMessage
from vmq_hooks.verdicts import Refuse

from vmq.mqtt.packets import (
    LEVEL_3_1,
    REFUSED_CLIENT_ID,
    REFUSED_CREDENTIALS,
    REFUSED_NOT_AUTHORISED,
    REFUSED_UNAVAILABLE,
    Connect,
    ConnectRefused,
)
from vmq.refusing import SHOWN, reason_of
from vmq.registry import Registry


def check_client_id(connect: Connect, longest: int) -> None:
    """Refuses an id that is empty without need, or longer than `longest` bytes."""
    client_id = connect.client_id
    if not client_id:
        if connect.level == LEVEL_3_1:
            raise ConnectRefused("empty client id in MQTT 3.1", REFUSED_CLIENT_ID)
        if not connect.clean_session:
            raise ConnectRefused(
                "empty client id without clean session [MQTT-3.1.3-8]", REFUSED_CLIENT_ID
            )
    elif len(client_id.encode()) > longest:
        raise ConnectRefused(
            "client id longer than max_client_id_size [MQTT-3.1.3-9]", REFUSED_CLIENT_ID
        )


def check_load(registry: Registry, client_id: str) -> None:
    """Refuses a client that connects too often, and everybody while memory is short."""
    core = registry.core
    if core.memory_is_high:
        core.counters.memory_refused += 1
        raise ConnectRefused("memory is above max_memory", REFUSED_UNAVAILABLE)
    if registry.flapping.is_banned(client_id, core.clock()):
        core.counters.flapping_refused += 1
        raise ConnectRefused(
            "the client id connects too often (flapping_limit)", REFUSED_UNAVAILABLE
        )


def refuse(refusal: Refuse) -> ConnectRefused:
    """The answer to a client that a plugin refuses."""
    code = REFUSED_CREDENTIALS if refusal.bad_credentials else REFUSED_NOT_AUTHORISED
    return ConnectRefused(reason_of(refusal), code)


def refuse_will(refusal: Refuse, connect: Connect) -> ConnectRefused:
    """The answer to a client whose will a plugin refuses."""
    topic = connect.will_topic.decode()[:SHOWN]
    text = "will on topic " + topic + " not allowed: " + reason_of(refusal)
    return ConnectRefused(text, REFUSED_NOT_AUTHORISED)


def no_authentication() -> ConnectRefused:
    """The answer where clients must be known and nobody knows any."""
    return ConnectRefused(
        "no authentication is set up and anonymous clients are not allowed here",
        REFUSED_NOT_AUTHORISED,
    )


def will_seen(connect: Connect) -> SeenMessage:
    """The will, for plugins."""
    return SeenMessage(
        connect.will_topic.decode(),
        connect.will_payload,
        connect.will_qos,
        connect.will_retain,
    )
