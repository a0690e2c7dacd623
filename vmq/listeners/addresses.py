"""How many connections there are from each address (`Connection.network`), and who is one too many."""

from vmq.core.context import Core
from vmq.protocol.connection import Connection


def is_full(core: Core, network: str) -> bool:
    """Whether an address has all the connections that `max_connections_per_ip` allows."""
    limit = core.options.max_connections_per_ip
    return limit > 0 and network != "" and core.networks.get(network, 0) >= limit


def reason(core: Core, network: str) -> str:
    """Why one more is refused, for the log."""
    limit = core.options.max_connections_per_ip
    return f"max_connections_per_ip = {limit} reached by {network}"


def arrived(connection: Connection) -> bool:
    """Counts a connection; whether it may stay. Whoever is counted has to be counted out by `left`."""
    core, network = connection.core, connection.network
    if network == "":
        return True
    may_stay = not is_full(core, network)
    core.networks[network] = core.networks.get(network, 0) + 1
    return may_stay


def left(connection: Connection) -> None:
    """A connection that was counted has ended."""
    network, networks = connection.network, connection.core.networks
    if network == "":
        return
    count = networks.get(network, 0) - 1
    if count > 0:
        networks[network] = count
    else:
        networks.pop(network, None)
