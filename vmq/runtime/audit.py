"""The audit log: who changed what, with what result, and who was not let in.

The events are those of the logger `vmq.runtime.audit`: in a file of their own (`log.audit_file`), or in the log. Of
refused logins `vmq.protocol.refusals` tells.
"""

import json
import logging
import os
import pwd
import socket
import struct
from collections.abc import Mapping
from typing import Final

from vmq.config.text import HIDDEN, is_secret

#: Seen at every level of the log: what is lost here cannot be asked for later.
log = logging.getLogger("vmq.audit")

#: Not held back as a flood is: who may change the broker is known, and each change counts.
WHOLE: Final = {"is_whole": True}
#: Characters of a value, and of a result, that are shown.
SHOWN: Final = 200
_CREDENTIALS: Final = struct.Struct("3i")  # struct ucred: pid, uid, gid


class Parameters(dict[str, object]):
    """Parameters of an operation without secrets: an object in JSON, and JSON in text."""

    def __str__(self) -> str:
        return json.dumps(self, ensure_ascii=False, default=str)


def tell_of_operation(
    name: str, parameters: Mapping[str, object], by: str, peer: str, result: str
) -> None:
    """An operation of the API was done, or was not.

    Args:
        name: the operation's.
        parameters: as they came; those that may be secret are hidden here.
        by: who asked.
        peer: from where; "socket" is the admin socket, "offline" a command while the broker is stopped,
            "file" one that changes a file, whether the broker runs or not.
        result: "ok", or what became of it.
    """
    shown = Parameters()
    for key, value in parameters.items():
        # The value of an option is as secret as the option's name says.
        named = f"{key} {parameters.get('option', '')}" if key == "value" else key
        shown[key] = HIDDEN if is_secret(named) else _shortened(value)
    text = 'operation name=%s by="%s" peer=%s parameters=%s result="%s"'
    log.info(text, name, by, peer, shown, result[:SHOWN], extra=WHOLE)


def tell_of_key(peer: str, path: str, by: str) -> None:
    """A request to the API brought no good key; `by` is the key that may not do this, "nobody" if there is none."""
    text = 'api key refused peer=%s path="%s" by="%s"'
    log.warning(text, peer, path[:SHOWN], by)


def tell_of_reload(changed: str, result: str) -> None:
    """SIGHUP had the configuration read again."""
    text = 'configuration reload by="%s" changed="%s" result="%s"'
    log.info(text, "SIGHUP", changed, result[:SHOWN], extra=WHOLE)


def tell_of_plugins(problem: str) -> None:
    """A plugin does not go by the configuration that is in force, whoever has changed that."""
    log.info('configuration not followed reason="%s"', problem[:SHOWN], extra=WHOLE)


def user_of(fd: int) -> str:
    """Whose program is at the other end of a Unix socket (SO_PEERCRED), as in "alice (uid 1000)"."""
    with socket.socket(fileno=os.dup(fd)) as peer:
        data = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, uid, _ = _CREDENTIALS.unpack(data)
    return _name_of(uid)


def this_user() -> str:
    """Who runs this program, in the same way."""
    return _name_of(os.getuid())


def _name_of(uid: int) -> str:
    try:
        return f"{pwd.getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:
        return f"uid {uid}"


def _shortened(value: object) -> object:
    if isinstance(value, int | float | None):
        return value
    return str(value)[:SHOWN]
