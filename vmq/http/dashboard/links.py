"""Links to the page."""

from typing import TYPE_CHECKING

from vmq.admin.keys import Scope
from vmq.http.dashboard.dashboard import dashboard_of

if TYPE_CHECKING:
    from vmq.ports import BrokerView


def links_of(broker: "BrokerView", scope: Scope = "read") -> list[str]:
    """A link for each listener of HTTP, as a browser on this machine opens it: one of them is good, once."""
    places = http_addresses(broker)
    if not places:
        return []
    token = dashboard_of(broker).page_keys.token(scope)
    return [f"{place}/#token={token}" for place in places]


def http_addresses(broker: "BrokerView") -> list[str]:
    """Where the page is, as a browser on this machine reaches it."""
    found = []
    for each in broker.listeners.values():
        if each.endpoint.scheme == "http" and not broker.config.listeners[each.name].serve:
            url = each.url.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")
            found.append(url.rstrip("/"))
    return found
