"""`vmq health`: whether a broker can do its work, for people, scripts and containers."""

import json
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from typing import Annotated
from urllib.parse import urlsplit

import typer

from vmq.cli.terminal.console import CliError, UsageError

DEFAULT_URL = "http://127.0.0.1:8888"
UrlOption = Annotated[
    str,
    typer.Option(
        "--url", metavar="URL", envvar="VMQ_HEALTH_URL", help="A listener of http of the broker."
    ),
]
TimeoutOption = Annotated[
    float, typer.Option("--timeout", metavar="SECONDS", min=0.1, help="Wait so long for an answer.")
]


LiveOption = Annotated[
    bool,
    typer.Option(
        "--live", help="Ask only whether it answers: what a restart can mend, and nothing else."
    ),
]


def health(
    url: UrlOption = DEFAULT_URL, timeout: TimeoutOption = 5.0, live: LiveOption = False
) -> None:
    """Ask a broker for its health.

    Prints "ok", or "degraded" and what is wrong while new clients are served.
    If they are not it prints each reason and exits with 1.

    \b
    Examples:
      vmq health
      vmq health --live
      vmq health --url http://127.0.0.1:8889
    """
    parts = urlsplit(url)
    if parts.scheme != "http" or not parts.hostname:
        raise UsageError(f"--url {url}: accepted: http://HOST:PORT")
    connection = HTTPConnection(parts.hostname, parts.port or 80, timeout=timeout)
    try:
        connection.request("GET", "/health/live" if live else "/health")
        response = connection.getresponse()
        answer = json.loads(response.read())
        reasons = [str(reason) for reason in answer["reasons"]]
    except (OSError, HTTPException) as error:
        text = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise CliError(f"no answer from {url}: {text.lower()}") from None
    except (ValueError, KeyError, TypeError):
        raise CliError(f"{url} is no broker's") from None
    finally:
        connection.close()
    if response.status != HTTPStatus.OK:
        raise CliError("\n".join(reasons) or f"{url} answers {response.status}")
    if reasons:
        print("degraded", *reasons, sep="\n")
    else:
        print("ok")
