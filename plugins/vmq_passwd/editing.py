"""Changes to the file of users: whoever reads it meanwhile sees the old file or the new one."""

import fcntl
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from vmq_passwd.hashes import make_hash
from vmq_passwd.users import Users, check_name, parse, with_user


def read(path: Path) -> Users:
    """The users of the file. Raises OSError, FileError."""
    return parse(path.read_bytes(), path)


def add(path: Path, name: str, password: bytes) -> bool:
    """Adds a user or gives one a new password; False if there was such a user.

    The file is made if there is none, for its owner alone.

    Raises:
        ValueError: the name cannot stand in a file; FileError: the file is broken; OSError.
    """
    check_name(name)
    line = f"{name}:{make_hash(password)}"
    users, _ = _rewrite(path, lambda data: with_user(data, name, line), may_create=True)
    return name not in users


def delete(path: Path, name: str) -> bool:
    """Takes a user out; False if there was none. Raises FileError, OSError."""
    _, is_changed = _rewrite(path, lambda data: with_user(data, name, None), may_create=False)
    return is_changed


def _rewrite(
    path: Path, change: Callable[[bytes], bytes], *, may_create: bool
) -> tuple[Users, bool]:
    """Replaces the file by a changed one; returns the users that were in it, and whether it was changed."""
    # Through symbolic links: the link stays, the file it leads to is replaced.
    path = path.resolve()
    with _locked(path.parent):
        try:
            data, status = path.read_bytes(), path.stat()
        except FileNotFoundError:
            if not may_create:
                raise
            data, status = b"", None
        # A broken file is not made worse: first its owner mends it.
        users = parse(data, path)
        new = change(data)
        parse(new, path)
        if new != data:
            _replace(path, new, status)
        return users, new != data


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Others that change files here wait: of two at once, one would lose its change."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _replace(path: Path, data: bytes, old: os.stat_result | None) -> None:
    """Puts a new file in the place of the old one, with its owner, and closed to all others."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            if old is not None:
                if (old.st_uid, old.st_gid) != (os.geteuid(), os.getegid()):
                    # The broker may run as another user than the one who edits.
                    os.fchown(descriptor, old.st_uid, old.st_gid)
                os.fchmod(descriptor, stat.S_IMODE(old.st_mode) & 0o660)
            file.flush()
            os.fsync(descriptor)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
