"""The configuration of a broker that a program makes: keywords stand where otherwise a file does."""

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import msgspec
from vmq_hooks import Plugin

from vmq.config.options import Config
from vmq.config.sources import ConfigError, Problem, Sources, did_you_mean
from vmq.config.text import toml_key, toml_value

#: Who states what stands in the call, for messages.
CALL: Final = "Broker()"

_USERS: Final = "a mapping of names to passwords, which are texts"

_GIVEN: Final = (
    "a mapping of options, a plugin (an object, not its class), or a pair of a plugin and options"
)

#: A plugin for `Broker(plugins=...)`: made by the program, its options, or both.
GivenPlugin = Plugin | Mapping[str, Any] | tuple[Plugin, Mapping[str, Any]]


class Keywords(msgspec.Struct, frozen=True, kw_only=True):
    """What `Broker` is told beside a configuration. What is left out is as the configuration says."""

    listen: str | Sequence[str] | None = None
    data_dir: str | Path | None = None
    users: Mapping[str, str] | None = None
    acl: str | Sequence[str] | None = None
    plugins: Mapping[str, GivenPlugin] = {}
    sections: Mapping[str, Any] = {}

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> "Keywords":
        """Those of a call whose keywords are all in one mapping."""
        own = {name: each for name, each in options.items() if name in cls.__struct_fields__}
        return cls(**own, sections={k: each for k, each in options.items() if k not in own})

    def over(self, config: Config | None) -> Config:
        """The configuration with these in force.

        Raises:
            ConfigError: with every problem, each with its key and what is accepted.
        """
        if config is not None and not isinstance(config, Config):
            raise ConfigError([problem("config", "a vmq.Config", config)])
        base = Config() if config is None else config
        tree = self.tree(base)
        if not tree:
            return base
        sources = Sources(Config)
        origins = msgspec.to_builtins(base, enc_hook=os.fspath)
        sources.add_tree(origins, lambda _key: None)
        sources.add_tree(tree, lambda _key: CALL)
        return sources.resolve()[0]

    def made(self) -> dict[str, Plugin]:
        """The plugins that the program has made itself, by name."""
        firsts = {
            name: given[0] if isinstance(given, tuple) else given
            for name, given in self.plugins.items()
        }
        return {name: each for name, each in firsts.items() if isinstance(each, Plugin)}

    def tree(self, base: Config) -> dict[str, Any]:
        """The sections that are stated, as a file would hold them.

        Raises:
            ConfigError: a keyword is none of what it accepts, or two say the same.
        """
        if problems := list(self._problems()):
            raise ConfigError(problems)
        tree: dict[str, Any] = {
            name: _plain(section, name) for name, section in self.sections.items()
        }
        if self.listen is not None:
            urls = [self.listen] if isinstance(self.listen, str) else list(self.listen)
            tree["listeners"] = {str(n): {"url": url} for n, url in enumerate(urls, 1)}
        if self.data_dir is not None:
            tree["broker"] = {**tree.get("broker", {}), "data_dir": os.fspath(self.data_dir)}
        stated = self._plugins()
        if stated:
            had = {name: msgspec.to_builtins(each) for name, each in base.plugins.items()}
            # One that the program has made, without a word about options, goes by those that are there.
            bare = [name for name, each in self.plugins.items() if isinstance(each, Plugin)]
            kept = {name: had[name] for name in bare if name in had}
            tree["plugins"] = {**had, **stated, **kept}
        return tree

    def _problems(self) -> Iterator[Problem]:
        """The keywords, but for sections, that are none of what they accept."""
        # Of any type: a program may give what its types forbid.
        listen: Any = self.listen
        data_dir: Any = self.data_dir
        users: Any = self.users
        acl: Any = self.acl
        plugins: Any = self.plugins
        known = list(dict.fromkeys((*self.__struct_fields__[:-1], *Config.__struct_fields__)))
        for name in self.sections:
            if name not in known:
                yield Problem(
                    name, f"there is no keyword {name!r}; {did_you_mean(name, known)}", CALL
                )
        listed = _is_text(listen) or _is_texts(listen)
        if listen is not None and not listed:
            yield problem("listen", "a URL, or a list of them", listen)
        if listen is not None and "listeners" in self.sections:
            yield Problem("listen", "listeners says the same; accepted: one of them", CALL)
        if data_dir is not None and not isinstance(data_dir, str | os.PathLike):
            yield problem("data_dir", "a path, or None for a folder that goes with it", data_dir)
        if users is not None and not isinstance(users, Mapping):
            yield Problem("users", f"accepted: {_USERS}", CALL)  # not its value: passwords
        elif users is not None:
            if not users:
                yield Problem("users", "it is empty, so nobody could connect", CALL)
            for name, password in users.items():
                if not _is_text(name) or not _is_text(password):
                    yield Problem(f"users.{toml_key(str(name))}", f"accepted: {_USERS}", CALL)
        if acl is not None and not _is_text(acl) and not _is_texts(acl):
            yield problem("acl", "rules as a text, or a list of its lines", acl)
        if not isinstance(plugins, Mapping):
            yield problem("plugins", "a mapping of names to plugins or their options", plugins)
            return
        for name, given in plugins.items():
            if not _is_given(given):
                yield Problem(f"plugins.{toml_key(str(name))}", f"accepted: {_GIVEN}", CALL)

    def _plugins(self) -> dict[str, Any]:
        """The sections of plugins that are stated; those for users and rules among them."""
        stated: dict[str, Any] = {}
        if self.users is not None:
            stated["vmq_passwd"] = {"passwords": _hashed(self.users)}
        if self.acl is not None:
            lines = self.acl.splitlines() if isinstance(self.acl, str) else list(self.acl)
            stated["vmq_acl"] = {"rules": lines or ["# nobody may do anything"]}
        for name, given in self.plugins.items():
            options: Any = given[1] if isinstance(given, tuple) else given
            if isinstance(options, Plugin):
                options = {}
            own = _plain(options, f"plugins.{toml_key(str(name))}")
            # `enabled` makes a table of what states nothing else.
            stated[name] = {"enabled": True, **stated.get(name, {}), **own}
        return stated


def as_toml(options: Mapping[str, Any]) -> str:
    """The keywords of `Broker` as a configuration file.

    Raises:
        TypeError: a plugin is an object of this process.
    """
    stated = Keywords.of(options)
    if stated.made():
        raise TypeError(
            "a plugin that the program has made cannot go to another process: name its path"
        )
    tree = stated.tree(Config())
    return "".join(f"{toml_key(name)} = {toml_value(table)}\n" for name, table in tree.items())


def temporary_folder() -> Path:
    """A new folder's name, that nobody can guess: for data that go with the broker."""
    return Path(tempfile.gettempdir()) / f"vmq-{uuid4().hex}"


def problem(key: str, accepted: str, value: object) -> Problem:
    """A keyword that is none of what it accepts."""
    return Problem(key, f"accepted: {accepted}", CALL, value)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_texts(value: object) -> bool:
    return isinstance(value, Sequence) and all(map(_is_text, value))


def _is_given(each: object) -> bool:
    if isinstance(each, tuple):
        return len(each) == 2 and isinstance(each[0], Plugin) and isinstance(each[1], Mapping)
    return isinstance(each, Plugin | Mapping)


def _plain(section: Any, key: str) -> dict[str, Any]:
    """A section as a file would give it: mappings, lists, text, numbers.

    Raises:
        ConfigError: it is none.
    """
    if not isinstance(section, Mapping):
        raise ConfigError([problem(key, "a mapping of options", section)])
    try:
        plain: dict[str, Any] = msgspec.to_builtins(dict(section), enc_hook=os.fspath)
    except TypeError as error:
        raise ConfigError([Problem(key, str(error), CALL)]) from None
    return plain


def _hashed(users: Mapping[str, str]) -> dict[str, str]:
    """The users with hashes that cost microseconds: their passwords lie open in the program that has them."""
    from vmq_passwd.hashes import quick_hash

    return {name: quick_hash(password.encode()) for name, password in users.items()}
