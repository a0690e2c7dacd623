"""The files of the page, as they lie in the package: read when first asked for, and kept compressed."""

import gzip
import hashlib
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from aiohttp import web

FOLDER: Final = Path(__file__).parent / "page"
#: What is served, and as what.
KINDS: Final = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
    ".txt": "text/plain",
}
#: Nothing comes from elsewhere, nothing stands inline, and nobody may frame it.
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
    "Vary": "Accept-Encoding",
}


class PageFile(NamedTuple):
    """A file: what it is, its bytes, the same compressed, and a name for exactly these bytes."""

    kind: str
    body: bytes
    compressed: bytes
    tag: str


@cache
def page_files() -> dict[str, PageFile]:
    """All files by their path in the folder. Whatever is not among them is not served."""
    found = {}
    for path in sorted(FOLDER.rglob("*")):
        if path.is_file() and path.suffix in KINDS:
            body = path.read_bytes()
            tag = f'"{hashlib.sha256(body).hexdigest()[:20]}"'
            packed = gzip.compress(body, 9, mtime=0)
            found[path.relative_to(FOLDER).as_posix()] = PageFile(
                KINDS[path.suffix], body, packed, tag
            )
    return found


async def show_page(_request: web.Request) -> web.Response:
    """The page itself."""
    return _answer(_request, "index.html")


async def show_file(request: web.Request) -> web.Response:
    """What the page consists of."""
    return _answer(request, request.match_info["path"])


def _answer(request: web.Request, name: str) -> web.Response:
    file = page_files().get(name)
    if file is None:
        raise web.HTTPNotFound(text=f"there is no {request.path}\n")
    headers = {**_HEADERS, "ETag": file.tag}
    if request.headers.get("If-None-Match") == file.tag:
        return web.Response(status=304, headers=headers)
    body = file.body
    if "gzip" in request.headers.get("Accept-Encoding", ""):
        headers["Content-Encoding"] = "gzip"
        body = file.compressed
    return web.Response(body=body, content_type=file.kind, charset="utf-8", headers=headers)


def routes() -> list[web.AbstractRouteDef]:
    """What this module answers."""
    return [web.get("/", show_page), web.get("/page/{path:.+}", show_file)]
