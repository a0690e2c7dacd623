"""Writes `config/vmq.toml`: every option with its default and one line of meaning.

`python -m vmq.config_reference [FILE]` prints the text, or writes it to a file. A test compares the file with this.
"""

import sys
from pathlib import Path

import msgspec
from msgspec import Struct

from vmq.config import Config
from vmq.config_sources import sections
from vmq.config_text import accepted, described, is_live, toml_value

_HEAD = """\
# vmq: every option with its default. What is left out has that default too.
#
# Later wins: this file, the environment (VMQ_QUEUE__DROP=oldest), the command line.
# `vmq config show` prints the values in force and where each comes from.
# Options marked (live) change while the broker runs: on SIGHUP it reads the file again. The others need a restart.
# Written by `make reference`; the meanings stand in vmq/config.py.
"""

# What is said above the tables of a section that has any number of them.
_TABLES = {
    "listeners": "# Listeners: [listeners.NAME] each. A file that names any replaces all of these.\n",
    "streams": "# Streams: [streams.NAME] each; none by default. They need vmq[streams].\n",
}


def reference() -> str:
    """The text of `config/vmq.toml`."""
    defaults = Config()
    parts = [_HEAD]
    for name, struct, named in sections(Config):
        options = getattr(defaults, name)
        if not named:
            parts.append(_section(name, struct, options))
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
        factory = field.default_factory
        default = field.default if factory is msgspec.NODEFAULT else factory()
        if not explained and value == default:
            continue  # the first of the tables tells them all
        # An option that is unset by default has no value to show: the name alone, as a comment.
        lines.append(
            f"{field.name} = {toml_value(value)}" if value is not None else f"# {field.name} ="
        )
    return "\n".join(lines) + "\n"


def _outline(header: str, struct: type[Struct]) -> str:
    """A table that is not there by default, as comments."""
    lines = [f"# [{header}]"]
    for field in msgspec.structs.fields(struct):
        lines.append(f"# {described(field.type)} Accepts: {accepted(field.type)}.")
        value = "..." if field.required else toml_value(field.default)
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
