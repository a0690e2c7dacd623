"""What all connections of one listener share."""

from typing import Any, Final

from vmq.core.context import Core
from vmq.core.hook_sites import Hooks
from vmq.jobs.commit import JobCommit

#: Bytes of replies that may wait for a client before no more of its commands are done.
REPLY_LIMIT: Final = 262_144
#: Bytes of a command from somebody who is not known yet.
STRANGERS_LIMIT: Final = 65_536
#: Bytes of a command beside the body of its job.
HEADERS: Final = 65_536


class RespDoor:
    """A listener, as its connections see it.

    Args:
        name: of the listener.
        commit: the jobs.
        core: for limits and counters.
        hooks: the plugins that decide who may do what.
    """

    def __init__(self, name: str, commit: JobCommit, core: Core, hooks: Hooks) -> None:
        self.name = name
        self.commit = commit
        self.core = core
        self.hooks = hooks
        #: Whether everybody may connect, and whether only as long as no plugin knows clients.
        self.anonymous = False
        self.anonymous_until_hook = False
        #: Whether its clients may do what an operator does.
        self.admin = False
        self.is_tls = False
        #: This node as clients of Disque see it: 40 hexadecimal digits, and where it listens.
        self.node_id: bytes = b"0" * 40
        self.host: bytes = b""
        self.port: bytes = b"0"
        self.max_job_size: int = 1_048_576
        self.mountpoint = ""
        #: Before the names of its queues: queues of different mountpoints are different.
        self.prefix: bytes = b""
        #: Its connections, and what they may change of the broker (`vmq.jobs.control`).
        self.clients: Any = {}
        self.control: Any = None
        #: Commands that are rarely used: (connection, arguments) -> reply.
        self.others: Any = None

    def is_open(self) -> bool:
        """Whether clients need not say who they are."""
        if not self.anonymous:
            return False
        return not self.anonymous_until_hook or self.hooks.auth_on_register is None
