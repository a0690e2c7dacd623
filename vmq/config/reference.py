"""Writes `config/reference.toml`: every option with its default and one line of meaning.

`python -m vmq.config.reference [FILE]` prints the text, or writes it to a file. A test compares the file with this.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, get_args, get_origin

import msgspec
from msgspec import Struct
from msgspec.structs import FieldInfo
from vmq_acl import AclConfig
from vmq_bridge import BridgesConfig
from vmq_graphite import GraphiteConfig
from vmq_passwd import PasswdConfig
from vmq_spark import SparkConfig
from vmq_systree import SystreeConfig
from vmq_webhooks import WebhooksConfig

from vmq.config.options import Config
from vmq.config.reload import is_live_option
from vmq.config.sources import sections
from vmq.config.text import accepted, described, is_live, toml_value

_HEAD = """\
# vmq: every option with its default and meaning, to look up and copy from. What a configuration leaves out has that
# default too: config/vmq.toml is the one to begin with.
#
# Later wins: this file, the environment (VMQ_QUEUE__DROP=oldest), the command line.
# `vmq config show` prints the values in force and where each comes from, with --changed those that are no defaults.
# Options marked (live) change while the broker runs: on SIGHUP it reads the file again, and `vmq set` changes one until
# its value in the file does, or the broker stops. The others need a restart.
# Relative paths count from the working directory; those in [plugins] from the folder of this file.
# Written by `make reference`; the meanings stand in vmq/config/options.py.
"""

# What is said above the tables of a section that has any number of them.
_TABLES = {
    "listeners": "# Listeners: [listeners.NAME] each. A file that names any replaces all of these.\n",
    "jobs": "# Jobs: [jobs.PATTERN] each, for the queues whose names it matches; none by default.\n",
    "schedules": "# Jobs by the clock: [jobs.schedules.NAME] each, or [schedules.NAME]; none by default.\n",
    "mappings": "# Mappings: [mappings.NAME] each; none by default.\n",
    "streams": "# Streams: [streams.NAME] each; none by default. They need vmq[streams].\n",
}


#: The plugins that come with vmq, and what each may be told.
_IN_THE_BOX: Final[Mapping[str, type[Struct]]] = {
    "vmq_passwd": PasswdConfig,
    "vmq_acl": AclConfig,
    "vmq_systree": SystreeConfig,
    "vmq_graphite": GraphiteConfig,
    "vmq_webhooks": WebhooksConfig,
    "vmq_bridge": BridgesConfig,
    "vmq_spark": SparkConfig,
}


def reference() -> str:
    """The text of `config/reference.toml`."""
    defaults = Config()
    parts = [_HEAD]
    for name, struct, named in sections(Config):
        options = getattr(defaults, name)
        if not named:
            parts.append(_section(name, struct, options))
            continue
        if name == "plugins":
            parts.append(_plugins(struct))
            parts += [_plugin(name, own) for name, own in _IN_THE_BOX.items()]
            continue
        parts.append(_TABLES[name])
        if not options:
            parts.append(_outline(f"{name}.NAME", struct))
        for number, (table, table_options) in enumerate(options.items()):
            header = f"{name}.{table}"
            parts.append(_section(header, struct, table_options, explained=number == 0))
    return "\n".join(parts)


def _section(header: str, struct: type[Struct], options: Struct, *, explained: bool = True) -> str:
    lines = [f"[{header}]"]
    for field in msgspec.structs.fields(struct):
        if explained:
            live = " (live)" if is_live(field.type) else ""
            lines.append(f"# {described(field.type)} Accepts: {accepted(field.type)}.{live}")
        value = getattr(options, field.name)
        if not explained and value == default_of(field):
            continue  # the first of the tables tells them all
        # An option that is unset by default has no value to show: the name alone, as a comment.
        lines.append(
            f"{field.name} = {toml_value(value)}" if value is not None else f"# {field.name} ="
        )
    return "\n".join(lines) + "\n"


def default_of(field: FieldInfo) -> Any:
    """The default of an option, an empty table or list among them."""
    factory = field.default_factory
    return field.default if factory is msgspec.NODEFAULT else factory()


def _plugins(struct: type[Struct]) -> str:
    """None comes with the defaults, so the options stand in comments."""
    lines = [
        "# Plugins: [plugins.NAME] each. Other keys than these are the plugin's own.",
        "# [plugins.NAME]",
    ]
    for field in msgspec.structs.fields(struct):
        if described(field.type):
            lines.append(f"# # {described(field.type)} Accepts: {accepted(field.type)}. (live)")
            value = "" if field.default is None else f" {toml_value(field.default)}"
            lines.append(f"# {field.name} ={value}")
    return "\n".join(lines) + "\n"


def _plugin(name: str, struct: type[Struct]) -> str:
    """A plugin in the box: in comments, since none runs unless it is named."""
    lines = [f"# [plugins.{name}]"]
    tables: list[str] = []
    for field in msgspec.structs.fields(struct):
        table = _named_table(field.type)
        if table is not None:
            tables.append(_plugin(f"{name}.{field.name}.NAME", table))
            continue
        lines.append(f"# # {described(field.type)} Accepts: {accepted(field.type)}. (live)")
        unset = field.required or field.default is None
        value = default_of(field)
        lines.append(f"# {field.name} =" + ("" if unset else f" {toml_value(value)}"))
    if tables and len(lines) == 1:
        lines.clear()
    return "\n".join(["\n".join([*lines, ""]), *tables] if lines else tables)


def _named_table(option: object) -> type[Struct] | None:
    """What each table of an option of named tables holds."""
    kind = next(iter(get_args(option)), None)
    if get_origin(kind) is not dict:
        return None
    held = get_args(kind)[1]
    return held if isinstance(held, type) and issubclass(held, Struct) else None


def _outline(header: str, struct: type[Struct]) -> str:
    """A table that is not there by default, as comments."""
    lines = [f"# [{header}]"]
    for field in msgspec.structs.fields(struct):
        live = " (live)" if is_live_option(header.partition(".")[0], field.type) else ""
        lines.append(f"# {described(field.type)} Accepts: {accepted(field.type)}.{live}")
        default = field.default
        if field.default_factory is not msgspec.NODEFAULT:
            default = field.default_factory()
        value = "..." if field.required else toml_value(default)
        lines.append(f"# {field.name} = {value}")
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> None:
    """Print the reference, or write it to the one file named."""
    if arguments:
        Path(arguments[0]).write_text(reference(), encoding="utf-8")
    else:
        print(reference(), end="")


if __name__ == "__main__":
    main(sys.argv[1:])
