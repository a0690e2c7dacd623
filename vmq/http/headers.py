"""What the head of every answer says."""

from aiohttp import web


def complete_head(response: web.StreamResponse) -> None:
    """An answer is of this moment, and nothing but what it says that it is."""
    response.headers.setdefault("Cache-Control", "no-store")
    response.headers.setdefault("X-Content-Type-Options", "nosniff")
    response.headers["Server"] = "vmq"  # not the library's, which names versions
