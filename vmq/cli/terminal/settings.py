"""The configuration as commands get it: from --config, the environment and their own options."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vmq.cli.terminal.console import USAGE, CliError, warning

if TYPE_CHECKING:
    from vmq.config.load import LoadedConfig
    from vmq.startup.preflight import Preflight

ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config", metavar="FILE", help="Configuration file (TOML). Without one: the defaults."
    ),
]
DataDirOption = Annotated[
    str | None,
    typer.Option(
        "--data-dir", metavar="DIR", help="Folder of durable state, instead of broker.data_dir."
    ),
]


def preflight(loaded: "LoadedConfig") -> "Preflight":
    """What a start of this configuration would find. Raises CliError (exit code 2) if it could not succeed."""
    from vmq.startup.preflight import Preflight

    found = Preflight(loaded)
    if found.problems:
        raise CliError("\n".join(found.problems), USAGE)
    return found


def load(path: Path | None, overrides: Mapping[str, object] | None = None) -> "LoadedConfig":
    """The checked configuration. Raises CliError (exit code 2) with every problem of it, one a line."""
    from vmq.config import load as config_load
    from vmq.config.sources import ConfigError

    try:
        return config_load.load(path, os.environ, overrides)
    except ConfigError as problems:
        raise CliError(str(problems), USAGE) from None


def tell_months(span: object) -> None:
    """Warn of a span in months, which may have been meant as minutes."""
    from vmq.config.values import months  # late: not every command has spans

    if read_as := months(str(span)):
        warning(read_as)
