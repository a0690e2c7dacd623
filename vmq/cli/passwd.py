"""`vmq passwd`: the file of users that the plugin vmq_passwd reads."""

import getpass
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Annotated, Final

import typer

from vmq.cli.terminal import settings
from vmq.cli.terminal.console import FAILURE, CliError, error, is_terminal, warning

app = typer.Typer(
    help="Add, delete and check users in a password file. A running broker takes it up by itself.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

# [MQTT-3.1.3.5]: two bytes of length.
_MAX_PASSWORD: Final = 65535

FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="The password file.")]
UserArgument = Annotated[str, typer.Argument(metavar="USER", help="The user name.")]
PasswordOption = Annotated[
    str | None,
    typer.Option(
        "--password",
        metavar="TEXT",
        help="Instead of asking. Other users of this machine can read command lines.",
    ),
]
AuditedOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="The broker's configuration (TOML), for its audit log (log.audit_file). Without one: the environment's.",
    ),
]


@app.command("add")
def add(
    path: FileArgument,
    user: UserArgument,
    password: PasswordOption = None,
    config: AuditedOption = None,
) -> None:
    """Add a user, or give one a new password. Makes the file if there is none.

    The password is asked for; where there is no terminal, it is the first line of
    standard input.

    \b
    Examples:
      vmq passwd add config/passwd alice
      vmq passwd add config/passwd lamp-17 < secret.txt
    """
    from vmq_passwd import editing

    secret = _password(password, is_new=True)
    with _problems(), _audited(config, "add_user", path, user) as results:
        is_new = editing.add(path, user, secret)
        results.append("added" if is_new else "new password")
    print(f"{user}: {'added' if is_new else 'new password'}")


@app.command("delete")
def delete(path: FileArgument, user: UserArgument, config: AuditedOption = None) -> int:
    """Delete a user. Exits with 1 if there is none of that name."""
    from vmq_passwd import editing

    with _problems(), _audited(config, "delete_user", path, user) as results:
        is_there = editing.delete(path, user)
        results.append("deleted" if is_there else "no such user")
    if not is_there:
        error(f"{path} has no user {user!r}")
        return FAILURE
    print(f"{user}: deleted")
    return 0


@app.command("check")
def check(path: FileArgument, user: UserArgument, password: PasswordOption = None) -> int:
    """Check a user's password. Exits with 1 if it is wrong."""
    from vmq_passwd import editing

    with _problems():
        stored = editing.read(path).get(user)
    if stored is None:
        error(f"{path} has no user {user!r}")
        return FAILURE
    if not stored.verify(_password(password, is_new=False)):
        error(f"{user}: wrong password")
        return FAILURE
    print(f"{user}: ok")
    return 0


def _audited(
    config: Path | None, name: str, path: Path, user: str
) -> AbstractContextManager[list[str]]:
    """Has the audit log tell of a change; what is put into the list is its result."""
    from vmq.cli.data.auditing import FILE, audited

    parameters = {"file": path.absolute(), "user": user}
    return audited(settings.load(config).config, name, parameters, FILE)


@contextmanager
def _problems() -> Iterator[None]:
    """What may be wrong with files and names, as text."""
    try:
        yield
    except OSError as problem:
        raise CliError(f"{problem.filename or 'file'}: {problem.strerror}") from None
    except ValueError as problem:
        raise CliError(str(problem)) from None


def _password(given: str | None, *, is_new: bool) -> bytes:
    """The password: from the command line, the terminal or standard input."""
    if given is not None:
        warning("a password on the command line can be read by other users of this machine")
        password = given.encode(errors="surrogateescape")
    elif is_terminal(sys.stdin):
        password = getpass.getpass("Password: ").encode()
        if is_new and getpass.getpass("Again: ").encode() != password:
            raise CliError("the passwords differ")
    else:
        password = sys.stdin.buffer.readline(_MAX_PASSWORD + 5).rstrip(b"\r\n")
        # What some editors and shells put before a text is no part of it: nobody would get in with it.
        password = password.removeprefix(b"\xef\xbb\xbf")
    if not password:
        raise CliError("the password is empty")
    if len(password) > _MAX_PASSWORD:
        raise CliError(f"the password is longer than {_MAX_PASSWORD} bytes")
    return password
