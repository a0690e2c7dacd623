"""Why a node that is to be joined does not answer, in words that an operator can act on."""

import asyncio
import os
from contextlib import suppress
from typing import Final

#: Seconds that an address has to take a connection.
_PATIENCE: Final = 2.0

#: What is true of somebody who listens and lets nobody in.
_OTHER: Final = (
    "who listens there does not answer: its cluster.key_file is not this node's, it runs another version of vmq, or it "
    "is no node of vmq (its log says which)"
)


async def why_silent(address: str) -> str:
    """What is wrong with an address at which nobody has answered."""
    scheme, _, rest = address.partition("://")
    try:
        async with asyncio.timeout(_PATIENCE):
            if scheme == "ipc":
                _, writer = await asyncio.open_unix_connection(rest)
            else:
                host, _, port = rest.rpartition(":")
                _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    except TimeoutError:
        return f"nobody answers there within {_PATIENCE:g} s: a wrong host, or a firewall"
    except (OSError, OverflowError) as error:
        number = getattr(error, "errno", None) or 0
        text = os.strerror(number) if number > 0 else str(error)
        return f"nobody listens there ({text}): it is to be the cluster.listen of a node that runs"
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
    return _OTHER


def namesake(name: str, address: str) -> str:
    """Two nodes have one name."""
    return (
        f"the node at {address} has this node's name, {name!r}: each needs a cluster.node_name and a data directory of "
        "its own; give one of the two another"
    )
