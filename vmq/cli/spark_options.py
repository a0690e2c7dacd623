"""The options of `vmq spark run`, and what their texts mean."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from vmq.cli.terminal.console import CliError, UsageError

if TYPE_CHECKING:
    from vmq.config.options import Config

_BROKER: Final = "Broker"
_SPARK: Final = "Spark"

PipelineArgument = Annotated[
    str,
    typer.Argument(
        metavar="PIPELINE", help="One in the box (vmq spark list), FILE.py or FILE.sql."
    ),
]
PipelineOption = Annotated[
    list[str] | None,
    typer.Option(
        *("-o", "--option"),
        metavar="NAME=VALUE",
        help="An option of the pipeline (vmq spark show PIPELINE). May be repeated.",
    ),
]
OutputOption = Annotated[
    str | None,
    typer.Option(
        "--output",
        metavar="DIR",
        help="Where its tables go: a folder, or a URL that Spark knows.",
        show_default="in the data folder",
    ),
]
CheckpointOption = Annotated[
    str | None,
    typer.Option(
        "--checkpoint",
        metavar="DIR",
        help="Where it notes how far it is: likewise.",
        show_default="in the data folder",
    ),
]
NameOption = Annotated[
    str | None,
    typer.Option(
        "--name", metavar="NAME", help="Another name, with checkpoints and tables of its own."
    ),
]
TriggerOption = Annotated[
    str,
    typer.Option("--trigger", metavar="TIME", help="Time between two batches, as in 500ms or 1m."),
]
OnceOption = Annotated[bool, typer.Option("--once", help="Take what is there, and end.")]
ServerOption = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="URL",
        help="The broker's listener grpc://HOST:PORT or grpc+tls://HOST:PORT.",
        show_default="that of the configuration",
        rich_help_panel=_BROKER,
    ),
]
UsernameOption = Annotated[
    str | None,
    typer.Option("-u", "--username", metavar="NAME", help="User name.", rich_help_panel=_BROKER),
]
PasswordFileOption = Annotated[
    Path | None,
    typer.Option(
        "--password-file",
        metavar="FILE",
        help="A file whose first line is the password.",
        rich_help_panel=_BROKER,
    ),
]
CafileOption = Annotated[
    Path | None,
    typer.Option(
        "--cafile",
        metavar="FILE",
        help="Certificates of the authorities to trust (PEM).",
        show_default="those of the system",
        rich_help_panel=_BROKER,
    ),
]
MasterOption = Annotated[
    str,
    typer.Option(
        "--master",
        metavar="URL",
        help="Where Spark runs: on this machine, or spark://HOST:PORT, yarn, k8s://HOST:PORT. A cluster wants "
        "--checkpoint and --output on storage that all its machines share.",
        rich_help_panel=_SPARK,
    ),
]
ConfOption = Annotated[
    list[str] | None,
    typer.Option(
        "--conf",
        metavar="NAME=VALUE",
        help="A setting of Spark's, as in spark.driver.memory=4g. May be repeated.",
        rich_help_panel=_SPARK,
    ),
]

_MASTER: Final = re.compile(
    r"(local(\[(\*|[1-9][0-9]*)(,[1-9][0-9]*)?\])?|yarn|(spark|k8s)://\S+)\Z"
)
#: Bytes of a file with a password.
_LONGEST_PASSWORD: Final = 65_535


def pairs(option: str, given: Sequence[str] | None) -> dict[str, str]:
    """What NAME=VALUE texts say. Raises UsageError for one that is none, or that comes twice."""
    found: dict[str, str] = {}
    for each in given or ():
        name, sign, value = each.partition("=")
        if not sign or not name:
            raise UsageError(f"{option} {each!r} is not accepted; expected NAME=VALUE")
        if name in found:
            raise UsageError(f"{option} {name} is given twice")
        found[name] = value
    return found


def master_of(text: str) -> str:
    """The master. Raises UsageError if Spark would not know it."""
    if not _MASTER.match(text):
        raise UsageError(
            f"--master {text!r} is not accepted; expected local[CORES] or local[CORES,ATTEMPTS] (CORES: a number "
            "or *), spark://HOST:PORT, yarn or k8s://HOST:PORT"
        )
    return text


def place_of(text: str | None, default: Path) -> str:
    """A folder or a URL; folders become absolute."""
    if text is None:
        return str(default.absolute())
    return text if "://" in text else str(Path(text).absolute())


def server_of(given: str | None, config: "Config") -> str:
    """The broker's Flight server: as given, else the first of the configuration.

    Raises:
        UsageError: there is none.
    """
    if given is not None:
        return given
    for each in config.listeners.values():
        endpoint = each.endpoint
        if endpoint.scheme in {"grpc", "grpc+tls"} and endpoint.port:
            host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(endpoint.host, endpoint.host)  # noqa: S104
            return endpoint.with_address(host, endpoint.port).url
    raise UsageError(
        "the configuration has no listener for Spark: give --server grpc://HOST:PORT, or --config with a file that "
        'says [listeners.flight] url = "grpc://127.0.0.1:8815"'
    )


def password_of(path: Path | None) -> str | None:
    """The first line of a file. Raises CliError if it cannot be read."""
    if path is None:
        return None
    try:
        with path.open("rb") as file:
            return file.readline(_LONGEST_PASSWORD).decode("utf-8-sig").rstrip("\r\n")
    except (OSError, UnicodeError) as problem:
        reason = getattr(problem, "strerror", None) or "it is no UTF-8"
        raise CliError(f"--password-file {path}: {reason}") from None
