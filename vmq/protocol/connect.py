"""What a CONNECT must pass before it is accepted: client id, load, authentication (section 3.1.4).

What follows, and the takeover of a session, is `vmq.protocol.login`.
"""

from hashlib import blake2b

from vmq_hooks.types import Message as SeenMessage
from vmq_hooks.types import Peer
from vmq_hooks.verdicts import Refuse

from vmq.core.context import CoreOptions
from vmq.core.registry import Registry
from vmq.core.subscriber import OURS
from vmq.mqtt.packets import (
    LEVEL_3_1,
    REFUSED_CLIENT_ID,
    REFUSED_NOT_AUTHORISED,
    REFUSED_UNAVAILABLE,
    Connect,
    ConnectRefused,
)
from vmq.protocol.changes import seen_message
from vmq.protocol.refusals import SHOWN, reason_of


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


def check_load(registry: Registry) -> None:
    """Refuses everybody while memory is short, or the node serves nobody."""
    core = registry.core
    if core.shut_to_clients:
        raise ConnectRefused(core.shut_to_clients, REFUSED_UNAVAILABLE)
    if core.memory_is_high:
        core.counters.memory_refused += 1
        raise ConnectRefused("memory is above max_memory", REFUSED_UNAVAILABLE)


def check_ban(registry: Registry, username: str | None, client_id: str, peer: Peer) -> None:
    """Refuses whom the operator has banned."""
    core = registry.core
    reason = core.bans.refusal(client_id, username, peer.host)
    if reason:
        core.counters.banned_refused += 1
        raise ConnectRefused(reason, REFUSED_NOT_AUTHORISED)


def check_flapping(registry: Registry, username: str | None, client_id: str) -> None:
    """Refuses a client that connects too often, known by its user and its id.

    Asked once the user is known to be who it says: else anybody could have anybody refused.
    """
    core = registry.core
    flapping = registry.flapping
    if flapping.limit <= 0:
        return
    # What is remembered is short, though a user name may be 64 KiB long.
    who = client_id if username is None else username + "\0" + client_id
    if flapping.is_banned(blake2b(who.encode(), digest_size=16).hexdigest(), core.clock()):
        core.counters.flapping_refused += 1
        raise ConnectRefused(
            "the client id connects too often (flapping_limit)", REFUSED_UNAVAILABLE
        )


def check_owner(registry: Registry, client_id: str, user: str) -> None:
    """Refuses who connects with the client id of another user's durable session."""
    if not registry.core.options.sessions_are_users:
        return
    found = registry.subscribers.get(client_id)
    owner = "" if found is None or not found.queue.durable else found.owner
    if owner and owner != user:
        whose = "the broker itself" if owner == OURS else 'user "' + owner[:SHOWN] + '"'
        raise ConnectRefused(
            "the session belongs to " + whose + " (session.owner)", REFUSED_CLIENT_ID
        )


def refuse(refusal: Refuse, bad_credentials: int) -> ConnectRefused:
    """The answer to a client that a plugin refuses; `bad_credentials` is the code where these are the reason."""
    return ConnectRefused(reason_of(refusal), code_of(refusal, bad_credentials), refusal.plugin)


def code_of(refusal: Refuse, bad_credentials: int) -> int:
    """The return code of CONNACK. Clients take 4 and 5 as final, so what may be over soon is 3 (table 3.1)."""
    if refusal.unavailable:
        return REFUSED_UNAVAILABLE
    return bad_credentials if refusal.bad_credentials else REFUSED_NOT_AUTHORISED


def check_will(connect: Connect, options: CoreOptions) -> None:
    """Refuses a will that could not be published: with too large a payload, or a topic of too many levels."""
    if not connect.has_will:
        return
    size, depth = options.max_message_size, options.topic_max_depth
    if size and len(connect.will_payload) > size:
        raise ConnectRefused("the will's payload is above max_message_size", REFUSED_NOT_AUTHORISED)
    if depth and connect.will_topic.count(b"/") >= depth:
        text = "the will's topic has more levels than topic_max_depth"
        raise ConnectRefused(text, REFUSED_NOT_AUTHORISED)


def refuse_will(refusal: Refuse, connect: Connect) -> ConnectRefused:
    """The answer to a client whose will a plugin refuses."""
    topic = connect.will_topic.decode()[:SHOWN]
    text = "will on topic " + topic + " not allowed: " + reason_of(refusal)
    code = REFUSED_UNAVAILABLE if refusal.unavailable else REFUSED_NOT_AUTHORISED
    return ConnectRefused(text, code, refusal.plugin)


def check_page(registry: Registry, foreign: str, connect: Connect, is_open: bool) -> None:
    """Refuses a foreign page that brings no credentials; `foreign` says which, `is_open` that none are needed here."""
    if is_open or (connect.username is None and connect.password is None):
        registry.core.counters.ws_page_refused += 1
        raise ConnectRefused(foreign + ", and brings no credentials", REFUSED_NOT_AUTHORISED)


def no_authentication() -> ConnectRefused:
    """The answer where clients must be known and nobody knows any."""
    return ConnectRefused(
        "no authentication is set up and anonymous clients are not allowed here",
        REFUSED_NOT_AUTHORISED,
    )


def will_seen(connect: Connect) -> SeenMessage:
    """The will, for plugins."""
    return seen_message(
        connect.will_topic.decode(),
        connect.will_payload,
        connect.will_qos,
        connect.will_retain,
    )
