"""What the tests of plugins share: a broker with plugins on a real socket."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from vmq_hooks import Plugin

from tests.vmq.sockets import TIMEOUT, Peer, config_in, peer_of
from vmq.broker import Broker
from vmq.config.options import AuthOptions, ClusterOptions, ListenerOptions, PluginOptions

__all__ = ["TIMEOUT", "Peer", "Plugin", "options", "peer_of", "serving"]


def options(**own: Any) -> PluginOptions:
    """A section; keys that the broker does not know are the plugin's."""
    known = {name: own.pop(name) for name in list(own) if name in PluginOptions.__struct_fields__}
    return PluginOptions(own_options=own, **known)


@asynccontextmanager
async def serving(
    folder: Path,
    plugins: Mapping[str, Plugin] | None = None,
    sections: Mapping[str, PluginOptions] | None = None,
    anonymous: bool | str = True,
    listeners: dict[str, ListenerOptions] | None = None,
    cluster: ClusterOptions | None = None,
) -> AsyncIterator[Broker]:
    config = msgspec.structs.replace(
        config_in(folder, listeners),
        auth=AuthOptions(allow_anonymous=anonymous),  # type: ignore[arg-type]
        plugins=dict(sections or {}),
        cluster=cluster or ClusterOptions(),
    )
    async with Broker(config, plugins=plugins) as broker:
        yield broker
