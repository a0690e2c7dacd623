"""Reads the configuration from its sources: file, environment, command line."""

from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from vmq.config.checks import check_typed
from vmq.config.options import Config, value_of
from vmq.config.plugins import UNWRITTEN, shown_options
from vmq.config.sources import DEFAULT, ConfigError, Problem, Sources, fields_of, sections
from vmq.config.streams import with_columns_of_file


class LoadedConfig(Struct, frozen=True):
    """A checked configuration and where each of its values comes from."""

    config: Config
    origins: Mapping[str, str]

    def origin(self, key: str) -> str:
        """Where the value of an option such as `queue.drop` or `listeners.tcp.url` comes from.

        The answer reads `default`, the path of a file, `environment VMQ_...` or `command line`.

        Raises:
            KeyError: there is no such option.
        """
        return self.origins[key]

    def items(self) -> list[tuple[str, object, str]]:
        """Key, value and origin of every option, in the order of the reference file; secrets of plugins are hidden."""
        found: list[tuple[str, object, str]] = []
        for key, origin in self.origins.items():
            section, _, option = key.rpartition(".")
            kind, _, name = section.partition(".")
            if kind != "plugins" or option not in UNWRITTEN:
                found.append((key, msgspec.to_builtins(value_of(self.config, key)), origin))
            elif option == UNWRITTEN[0]:
                found += shown_options(name, self.config.plugins[name])
        return found

    def changed(self) -> list[tuple[str, object, str]]:
        """Of `items` those whose value is not the default; a listener that is no longer there is None.

        The options of plugins are all that are set: their defaults are the plugins' own affair.
        """
        defaults = _defaults(self.config)
        found = [
            item for item in self.items() if item[0] not in defaults or item[1] != defaults[item[0]]
        ]
        found += [
            (f"listeners.{name}", None, next(iter(self._origins_of("listeners"))))
            for name in Config().listeners
            if name not in self.config.listeners
        ]
        # A plugin runs because its table is there, be it empty.
        mentioned = {key.rpartition(".")[0] for key, _, _ in found}
        found += [
            (f"plugins.{name}.enabled", options.enabled, options.stated_in)
            for name, options in self.config.plugins.items()
            if f"plugins.{name}" not in mentioned
        ]
        return found

    def _origins_of(self, section: str) -> list[str]:
        """Who sets options of a section."""
        set_by = (
            origin for key, origin in self.origins.items() if key.partition(".")[0] == section
        )
        return [origin for origin in set_by if origin != DEFAULT]


def _defaults(config: Config) -> dict[str, object]:
    """The default of every option of this configuration that has one, by dotted key."""
    shipped = Config()
    found: dict[str, object] = {}
    for name, struct, named in sections(Config):
        tables = getattr(config, name)
        for table in tables if named else ("",):
            prefix = f"{name}.{table}" if table else name
            known = getattr(shipped, name).get(table) if named else getattr(shipped, name)
            for field in fields_of(struct):
                if known is not None:
                    value = getattr(known, field.name)
                elif field.required:
                    continue
                else:
                    value = (
                        field.default
                        if field.default_factory is msgspec.NODEFAULT
                        else field.default_factory()
                    )
                found[f"{prefix}.{field.name}"] = msgspec.to_builtins(value)
    return found


def load(
    path: Path | None = None,
    environ: Mapping[str, str] | None = None,
    overrides: Mapping[str, object] | None = None,
) -> LoadedConfig:
    """Read the configuration: defaults, then a TOML file, the environment, the command line; later wins.

    Args:
        path: the TOML file; None = there is none. A file that names listeners replaces the shipped ones.
        environ: the environment, of which `VMQ_SECTION__OPTION` and `VMQ_LISTENERS__NAME__OPTION` are read. Values are
            TOML, or plain text where that is not TOML of the right type.
        overrides: what the command line says, by dotted key (`{"broker.data_dir": "x"}`). `listeners` takes a list of
            URLs, or a mapping of names to tables, and replaces every listener.

    Raises:
        ConfigError: with every problem found, each with its source, key, value and what is accepted.
    """
    sources = Sources(Config)
    if path is not None:
        sources.add_file(path)
    sources.add_environment(environ or {})
    sources.add_overrides(overrides or {})
    config, origins = sources.resolve()

    def origin(key: str) -> str | None:
        return origins.get(key) or sources.source_of(key)

    config = _with_schema_files(config, origin)
    check_typed(config, origin)
    return LoadedConfig(config, origins)


def _with_schema_files(config: Config, origin: Callable[[str], str | None]) -> Config:
    streams, problems = dict(config.streams), []
    for name, options in config.streams.items():
        try:
            streams[name] = with_columns_of_file(options)
        except ValueError as error:
            key = f"streams.{name}.schema_file"
            problems.append(Problem(key, str(error), origin(key), options.schema_file))
    if problems:
        raise ConfigError(problems)
    return msgspec.structs.replace(config, streams=streams)


def changed(config: Config, key: str, text: str) -> Config:
    """The configuration with one option changed, for a broker that runs.

    Args:
        config: the configuration as it is.
        key: the option, such as `queue.drop`.
        text: its value, as TOML or plain text.

    Raises:
        ConfigError: there is no such option, or it does not accept the value.
    """
    sources = Sources(Config)
    sources.add_tree(msgspec.to_builtins(config), lambda _key: None)
    sources.add_text(key, text)
    found, _ = sources.resolve()
    check_typed(found, lambda _key: None)
    return found
