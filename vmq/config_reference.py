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
# Options marked (live) change while the broker runs: on SIGHUP it reads the file again, and `vmq set` changes one until
# its value in this file does, or the broker stops. The others need a restart.
# Written by `make reference`; the meanings stand in vmq/config.py.
"""


def reference() -> str:
    """The text of `config/vmq.toml`."""
    defaults = Config()
    parts = [_HEAD]
    for name, struct, named in sections(Config):
        options = getattr(defaults, name)
        if not named:
            parts.append(_section(name, struct, options))
            continue
        parts.append(
            f"# Listeners: [{name}.NAME] each. A file that names any replaces all of these.\n"
        )
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


def main(arguments: list[str]) -> None:
    """Print the reference, or write it to the one file named."""
    if arguments:
        Path(arguments[0]).write_text(reference(), encoding="utf-8")
    else:
        print(reference(), end="")


if __name__ == "__main__":
    main(sys.argv[1:])
