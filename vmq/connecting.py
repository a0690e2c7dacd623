"""What a CONNECT must pass before it is accepted: client id, load, authentication (section 3.1.4)."""

from vmq.core import Core
from vmq.hooks import Refused
from vmq.mqtt.packets import (
    LEVEL_3_1,
    REFUSED_CLIENT_ID,
    REFUSED_CREDENTIALS,
    REFUSED_NOT_AUTHORISED,
    REFUSED_UNAVAILABLE,
    Connect,
    ConnectRefused,
)
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


def authorise_client(
    core: Core, connect: Connect, client_id: str, peer: str, certified: bool
) -> None:
    """Asks the auth hook; without one only `certified` clients may enter.

    A verified certificate needs no hook, though one that there is may refuse its name.
    """
    hook = core.hooks.auth_on_register
    if hook is None:
        if not certified:
            raise ConnectRefused(
                "no authentication is set up and anonymous clients are not allowed here",
                REFUSED_NOT_AUTHORISED,
            )
        return
    try:
        hook(peer, client_id, connect.username, connect.password, connect.clean_session)
    except Refused as refused:
        code = REFUSED_CREDENTIALS if refused.bad_credentials else REFUSED_NOT_AUTHORISED
        raise ConnectRefused(refused.reason, code) from None
    except Exception as error:  # noqa: BLE001 - a plugin may raise anything
        core.hook_failed("auth_on_register", error)
        raise ConnectRefused("auth_on_register failed", REFUSED_NOT_AUTHORISED) from None


def authorise_will(core: Core, connect: Connect, client_id: str) -> None:
    """Asks whether the client may publish its will, if it has one."""
    hook = core.hooks.auth_on_publish
    if hook is None or not connect.has_will:
        return
    try:
        hook(
            connect.username,
            client_id,
            connect.will_qos,
            connect.will_topic.decode(),
            connect.will_payload,
            connect.will_retain,
        )
    except Refused as refused:
        raise ConnectRefused(
            "will not allowed: " + refused.reason, REFUSED_NOT_AUTHORISED
        ) from None
    except Exception as error:  # noqa: BLE001 - a plugin may raise anything
        core.hook_failed("auth_on_publish", error)
        raise ConnectRefused("will: auth_on_publish failed", REFUSED_NOT_AUTHORISED) from None
