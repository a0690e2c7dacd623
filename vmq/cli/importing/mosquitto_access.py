"""Who may connect to mosquitto and may do what there, said for all listeners or for each, as vmq can have it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct, field

from vmq.cli.importing.rules import Imported, Setting

_OPEN: Final = (
    "here it lets in everybody and asks no plugin; leave it out if users are to log in as well"
)
_NOT_OPEN: Final = "left out: here it would let in users with a wrong password too; who has no user name is refused"


class ListenerAccess(Struct):
    """What is said of a listener, or of all of them."""

    anonymous: bool | None = None
    anonymous_said: Setting | None = None
    password_file: Setting | None = None
    acl_file: Setting | None = None
    plugin: Setting | None = None

    @property
    def has_passwords(self) -> bool:
        """Whether the passwords of users are looked at."""
        return self.password_file is not None or self.plugin is not None


class AccessSettings(Struct):
    """What is said of all of them."""

    is_per_listener: bool = False
    scopes: dict[str | None, ListenerAccess] = field(default_factory=dict)

    def of(self, scope: str | None) -> ListenerAccess:
        """What is said of a listener; None: of all of them."""
        return self.scopes.setdefault(scope, ListenerAccess())


def write_access(
    access: AccessSettings, names: Sequence[str], folder: Path, found: Imported, *, local_only: bool
) -> None:
    """Writes the options of authentication and the files of users and rules.

    Args:
        access: what is said.
        names: the listeners.
        folder: where relative paths begin.
        found: gets the options and files.
        local_only: whether the configuration names no listener: then everybody on this machine is let in.
    """
    if access.is_per_listener:
        _write_each(access, names, folder, found, local_only=local_only)
        return
    own = access.of(None)
    _file(own.password_file, "passwd", folder, found)
    _file(own.acl_file, "acl", folder, found)
    if own.plugin is not None and own.acl_file is None:
        _closed_to_all(own.plugin, found)
    if own.anonymous is None:
        found.set("auth.allow_anonymous", "loopback" if local_only else False)
    else:
        found.set("auth.allow_anonymous", _is_open(own, found))


def _is_open(own: ListenerAccess, found: Imported) -> bool:
    """Whether everybody may be let in; what that means here is told."""
    if not own.anonymous:
        return False
    if own.anonymous_said is not None:
        found.differs(own.anonymous_said, _NOT_OPEN if own.has_passwords else _OPEN)
    return not own.has_passwords


def _write_each(
    access: AccessSettings, names: Sequence[str], folder: Path, found: Imported, *, local_only: bool
) -> None:
    """Each listener with its own; there is one file of either kind here, that of the first listener that has one."""
    found.set("auth.allow_anonymous", False)
    everyone = [(name, access.of(name)) for name in names]
    users = next((own.password_file for _, own in everyone if own.password_file), None)
    rules = next((own.acl_file for _, own in everyone if own.acl_file), None)
    passwd, acl = _file(users, "passwd", folder, found), _file(rules, "acl", folder, found)
    plugin = next((own.plugin for _, own in everyone if own.plugin), None)
    if plugin is not None and rules is None:
        _closed_to_all(plugin, found)
    for name, own in everyone:
        if own.anonymous is None and local_only:
            own.anonymous = not own.has_passwords
        if _is_open(own, found):
            found.set(f"listeners.{name}.allow_anonymous", True)
        elif users is not None and own.password_file is None:
            _without_users(name, found)
        if own.password_file is not None and _read(own.password_file, folder) != passwd:
            what = "listeners have different files, and passwd is that of the first: nobody is let in here"
            found.wrong(own.password_file, what)
            found.set(f"listeners.{name}.auth_plugins", [])
        if own.acl_file is not None and _read(own.acl_file, folder) != acl:
            what = "listeners have different files, and acl is that of the first: nothing is allowed here"
            found.wrong(own.acl_file, what)
            found.set(f"listeners.{name}.authz_plugins", [])
        elif own.acl_file is None and rules is not None:
            found.differs(
                rules, f"these rules hold for the listener {name} too, which has none there"
            )


def _without_users(name: str, found: Imported) -> None:
    """Keeps the users of other listeners out of one that has none. A certificate is asked for its name all the same."""
    if found.tree["listeners"][name].get("use_identity_as_username") is not True:
        found.set(f"listeners.{name}.auth_plugins", [])


def _closed_to_all(plugin: Setting, found: Imported) -> None:
    """Has nothing allowed where a plugin, of which nothing is known, may have said who may do what."""
    found.files["acl"] = b""
    found.set("plugins.vmq_acl.file", "acl")
    found.wrong(plugin, "it may decide who may do what: acl has no rules, so nothing is allowed")


def _file(setting: Setting | None, name: str, folder: Path, found: Imported) -> bytes | None:
    """Takes over a file of users or rules; without it nobody is let in, or nothing allowed."""
    if setting is None:
        return None
    data = _read(setting, folder)
    if isinstance(data, str):
        found.wrong(setting, f"{data}: copy the file to {name} beside vmq.toml")
        data = b""
    found.files[name] = data
    found.set(f"plugins.{'vmq_passwd' if name == 'passwd' else 'vmq_acl'}.file", name)
    if name == "acl":
        found.differs(
            setting,
            "rules mean the same or less here: plugins/vmq_acl/README.md has the differences",
        )
    return data


def _read(setting: Setting, folder: Path) -> bytes | str:
    """The file, or why it cannot be read."""
    try:
        return (folder / setting.value).read_bytes()
    except OSError as error:
        return error.strerror or "it cannot be read"
    except ValueError as error:
        return str(error)
