"""Who a user is, as the plugins see it: for requests over HTTP that are made as a user, not with an API key."""

from typing import TYPE_CHECKING, Any

from vmq_hooks import Peer, Refuse, SubscriberId

from vmq.admin.errors import (
    AdminError,
    NotAuthenticatedError,
    RefusedError,
    UnavailableError,
)
from vmq.admin.trees import registry_of
from vmq.plugins.chains import settled

if TYPE_CHECKING:
    from vmq.ports import BrokerView


async def let_in(
    broker: "BrokerView", username: str, password: str | None, who: SubscriberId, peer: Peer
) -> Any:
    """What the plugins say of a user who would connect: True, or the changes that they want.

    Raises:
        NotAuthenticatedError: the user is banned, or a plugin does not let it in.
        RefusedError: no plugin decides about users.
        UnavailableError: nobody could decide.
    """
    core = registry_of(broker, who.mountpoint).core
    banned = core.bans.refusal(who.client_id, username, peer.host)
    if banned:
        raise NotAuthenticatedError(banned)
    ask = broker.hooks.auth_on_register
    if ask is None:
        raise RefusedError("user: no plugin decides about users; leave it out")
    secret = None if password is None else password.encode()
    answer = await settled(ask(peer, who, username, secret, True))
    raise_if_refused(answer, NotAuthenticatedError)
    return answer


def raise_if_refused(answer: Any, kind: type[AdminError]) -> None:
    """Raises the error of a `kind` where a plugin said no, and UnavailableError where it could not say."""
    if isinstance(answer, Refuse):
        raise (UnavailableError if answer.unavailable else kind)(str(answer))
