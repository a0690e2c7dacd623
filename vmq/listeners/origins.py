"""Which web pages may use a WebSocket listener, and by which names it may be called.

A browser opens WebSockets for every page that it shows, to any machine that it can reach, and brings the user's
certificates along. It says by which page (Origin, RFC 6454), and no page can keep it from that. Other programs may say
what they want, and reach the listener without a browser in any case: what is kept out here are foreign pages in the
browsers of people who may reach it.
"""

import ipaddress
from typing import Final

from vmq.config.listeners import ANY_ORIGIN, ListenerOptions
from vmq.config.values import is_loopback, parse_origin

#: Characters of a header that are shown.
SHOWN: Final = 200


class Origins:
    """The pages and the names of one listener.

    Args:
        name: the listener's, in the configuration.
        options: its options.
    """

    def __init__(self, name: str, options: ListenerOptions) -> None:
        self.key = f"listeners.{name}.allowed_origins"
        listed = set(options.allowed_origins)
        self.allows_any = ANY_ORIGIN in listed
        self.allowed = {parse_origin(each) for each in listed - {ANY_ORIGIN}}
        #: All pages are looked at, also those whose users type a password.
        self.is_told = bool(listed)
        self.is_loopback = options.endpoint.is_loopback
        #: A browser cannot send the header that is demanded here.
        self.is_behind_proxy = options.proxy_protocol

    def misdirected(self, hosts: list[str], forwarded: bool) -> str:
        """Why a request must not call the listener by this name; "" if it may.

        On loopback only: a page whose own name was made to point at this machine (DNS rebinding) would be none that
        is foreign. `forwarded` says that a trusted proxy names the client; no browser sends that.
        """
        if not self.is_loopback or self.allows_any or self.is_behind_proxy or forwarded:
            return ""
        names = {host_name(each.partition("://")[2]) for each in self.allowed}
        for host in hosts:
            if not is_this_host(host) and host_name(host).lower() not in names:
                return (
                    f"Host {host[:SHOWN]!r} is not this machine's: a listener on loopback is called localhost or by "
                    f"address, or as a page in {self.key} is"
                )
        return ""

    def foreign(self, origins: list[str], hosts: list[str], forwarded: bool) -> str:
        """The page that is none of the listener's, of those that a request names; "" if there is none.

        One whose host and port are those of Host came from the same place, but only where no name can be made to
        point here: Host is an address or localhost, or a trusted proxy names the client (`forwarded`).
        """
        if self.allows_any:
            return ""
        is_told_truly = self.is_behind_proxy or forwarded
        same = [each for each in hosts if is_told_truly or is_this_host(each)]
        for origin in origins:
            if not self._is_ours(origin, same):
                return origin[:SHOWN] or "null"
        return ""

    def _is_ours(self, origin: str, hosts: list[str]) -> bool:
        try:
            page = parse_origin(origin)
        except ValueError:
            return False
        if page in self.allowed:
            return True
        scheme, _, place = page.partition("://")
        if not place:
            return False
        if self.is_loopback and is_loopback(host_name(place).strip("[]")):
            return True
        return any(_is_same(page, scheme, host) for host in hosts)

    def refusal(self, origin: str) -> str:
        """What a page that is none of the listener's is told, and the log."""
        return f"Origin {origin!r} is not in {self.key}"


def _is_same(page: str, scheme: str, host: str) -> bool:
    try:
        return parse_origin(f"{scheme}://{host}") == page
    except ValueError:
        return False


def host_name(host: str) -> str:
    """The value of a Host header without its port."""
    return host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host


def is_this_host(host: str) -> bool:
    """Whether the value of a Host header names this machine, or is an address."""
    name = host_name(host).strip("[]")
    if name.lower() == "localhost":
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
