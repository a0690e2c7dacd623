"""`/links`: a plain page, with links to all there is.

The manual is the README of the version that runs: it is part of the installed package's metadata.
"""

import re
from collections.abc import Iterator
from functools import cache
from html import escape
from importlib.metadata import PackageNotFoundError, metadata
from typing import Final, NamedTuple

from aiohttp import web

from vmq.version import __version__

#: Path and what it has; in the order of the page.
LINKS: Final = (
    ("/", "the live page; vmq open makes a link to it that is good once"),
    ("/health", "whether the broker is well, and why not"),
    ("/health/ready", "whether new clients are served"),
    ("/health/live", "whether the process answers"),
    ("/health/listeners", "each listener, and whether it accepts"),
    ("/metrics", "every figure, for Prometheus"),
    ("/status.json", "version, uptime, connections, rates"),
    (
        "/api/v1/openapi.json",
        "the API for operators, described by OpenAPI; vmq api-key create makes a key",
    ),
)

_PAGE: Final = """\
<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>body {{ font-family: sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em }}
pre {{ white-space: pre-wrap }}</style>
<h1>{title}</h1>
{body}
</html>
"""
#: Nothing of the page comes from elsewhere, and nothing of it runs.
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"


class Topic(NamedTuple):
    """A section of the manual."""

    title: str
    text: str

    @property
    def anchor(self) -> str:
        """Its name in the address of the page."""
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-")


@cache
def topics() -> list[Topic]:
    """The sections of the README that came with this version; none if it is not installed as a package."""
    try:
        text = str(metadata("vmq").json.get("description", ""))
    except PackageNotFoundError:
        return []
    parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)[1:]
    return [
        Topic(title.strip(), body.strip())
        for title, body in zip(parts[::2], parts[1::2], strict=True)
    ]


async def show_home(_request: web.Request) -> web.Response:
    """Links to what is served, and to the manual."""
    return _page(f"vmq {__version__}", "\n".join(_home()))


async def show_manual(_request: web.Request) -> web.Response:
    """The manual, as text under its headings."""
    sections = (
        f'<h2 id="{each.anchor}">{escape(each.title)}</h2>\n<pre>{escape(each.text)}</pre>'
        for each in topics()
    )
    return _page(
        f"vmq {__version__}: manual", "\n".join(['<p><a href="/links">Back</a></p>', *sections])
    )


def _home() -> Iterator[str]:
    yield "<p>An MQTT broker. This is its listener for HTTP.</p>"
    yield "<ul>"
    for path, what in LINKS:
        yield f'<li><a href="{path}">{path}</a>: {escape(what)}</li>'
    yield "</ul>"
    found = topics()
    if found:
        yield "<h2>Manual</h2>\n<ul>"
        for each in found:
            yield f'<li><a href="/manual#{each.anchor}">{escape(each.title)}</a></li>'
        yield "</ul>"
    yield "<p>From a shell: <code>vmq --help</code></p>"


def _page(title: str, body: str) -> web.Response:
    return web.Response(
        text=_PAGE.format(title=escape(title), body=body),
        content_type="text/html",
        charset="utf-8",
        headers={"Content-Security-Policy": _POLICY},
    )


def routes() -> list[web.AbstractRouteDef]:
    """What this module answers."""
    return [web.get("/links", show_home), web.get("/manual", show_manual)]
