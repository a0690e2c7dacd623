"""A folder of files, for a web page that talks to the broker: read only, and on an origin of its own.

Beside the files there is MQTT at `/mqtt` and nothing else: no API, no figures, no live page.
"""

from pathlib import Path
from typing import Final

from aiohttp import web

from vmq.http.app import complete, only_this_host

#: Pages may use what lies in the folder, and MQTT at this origin. Scripts and styles are files: none stands inline.
#:
#: Workers may come from blob: MQTT.js makes one for the timer of its PINGREQ, unless it is told otherwise; without that
#: the broker ends the connection of a page that says nothing. It opens no door: only a script of the page can make a
#: blob of its origin, and scripts come from the folder; what is in the blob is bound by this policy as they are.
POLICY: Final = (
    "default-src 'self'; img-src 'self' data:; worker-src 'self' blob:; object-src 'none'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
INDEX: Final = "index.html"
#: Browsers ask for it unasked, and tell of an error in every page whose folder has none.
ICON: Final = "favicon.ico"


def folder_app(folder: Path, *, allow_remote: bool = False) -> web.Application:
    """The application of a listener that serves a folder; `allow_remote` as for the one of the API."""
    app = web.Application(middlewares=[] if allow_remote else [only_this_host])
    app.on_response_prepare.append(complete)
    served = ServedFolder(folder)
    app.router.add_get("/{path:.*}", served.serve)
    return app


class ServedFolder:
    """The files below a folder, but for those whose names, or whose folders' names, begin with a dot."""

    def __init__(self, folder: Path) -> None:
        self._root = folder.resolve()

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """A file, or the `index.html` of a folder, whose path ends with a slash: its links count from there."""
        asked = request.match_info["path"]
        path = self.find(asked)
        if path is None and asked == ICON:
            return web.Response(status=204)
        if path is None:
            raise web.HTTPNotFound(text=f"there is no {request.path}\n")
        if not request.path.endswith("/") and (self._root / asked.lstrip("/")).is_dir():
            query = request.rel_url.raw_query_string
            # Only the last name: a path that begins with two slashes would lead to another host.
            raise web.HTTPFound(f"./{request.rel_url.raw_name}/{'?' if query else ''}{query}")
        headers = {
            "Content-Security-Policy": POLICY,
            "Referrer-Policy": "no-referrer",
            "Cache-Control": "no-cache",
        }
        return web.FileResponse(path, headers=headers)

    def find(self, asked: str) -> Path | None:
        """The file that a path of a request names; None: there is none, or it is not to be served.

        Links are followed as long as they lead to a file of the folder that might be asked for itself.
        """
        try:
            path = (self._root / asked.lstrip("/")).resolve()
            if path.is_dir():
                path /= INDEX
                path = path.resolve()
            inside = path.relative_to(self._root)
            if not path.is_file():
                return None
        except (
            OSError,
            RuntimeError,
            ValueError,
        ):  # outside, too long, a circle of links, no path at all
            return None
        parts = (*Path(asked).parts, *inside.parts)
        return None if any(part.startswith(".") for part in parts) else path
