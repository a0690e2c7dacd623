"""Sockets at a path of this machine."""

import errno
import os
import socket
import stat
from contextlib import suppress
from pathlib import Path


def listening_at(path: str, backlog: int = 128) -> socket.socket:
    """A socket at a path that its owner alone may connect to; what a dead process left there is taken away.

    Raises:
        OSError: it cannot be made there, or somebody listens there.
    """
    with suppress(FileNotFoundError):
        if stat.S_ISSOCK(Path(path).lstat().st_mode):
            if _is_heard_at(path):
                raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
            Path(path).unlink()
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        made.bind(path)
        Path(path).chmod(0o600)
        made.listen(backlog)
    except OSError as error:
        made.close()
        # A path that is too long has no number.
        raise OSError(error.errno or errno.ENAMETOOLONG, error.strerror or str(error)) from None
    return made


def _is_heard_at(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        # A full backlog is somebody's, too.
        return probe.connect_ex(path) not in {errno.ECONNREFUSED, errno.ENOENT}
