"""Links to the page."""

from vmq.admin.keys import Scope
from vmq.http.dashboard.dashboard import Dashboard
from vmq.http.dashboard.source import PageSource


def links_of(dashboard: Dashboard, scope: Scope = "read") -> list[str]:
    """A link for each listener of HTTP, as a browser on this machine opens it: one of them is good, once."""
    places = http_addresses(dashboard.source)
    if not places:
        return []
    token = dashboard.page_keys.token(scope)
    return [f"{place}/#token={token}" for place in places]


def http_addresses(source: PageSource) -> list[str]:
    """Where the page is, as a browser on this machine reaches it."""
    found = []
    for name, each in source.listeners.items():
        if each.endpoint.scheme == "http" and not source.config.listeners[name].serve:
            url = each.url.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")
            found.append(url.rstrip("/"))
    return found
