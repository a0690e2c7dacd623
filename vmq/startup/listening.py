"""Opens a listener of the configuration as what its address says: MQTT, jobs, HTTP or Arrow Flight."""

from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from vmq.config.options import Config, ListenerOptions
from vmq.http.admin_socket import AdminSocket, SocketError
from vmq.http.server import HttpListener
from vmq.listeners.handed import HandedListener
from vmq.listeners.listener import Listener
from vmq.runtime.client_ids import new_client_id
from vmq.runtime.errors import StartError
from vmq.startup.late_imports import import_late
from vmq.streams.serving.opening import check_libraries

if TYPE_CHECKING:
    from aiohttp import web

    from vmq.ports import BrokerView
    from vmq.streams.serving.listener import FlightListener


def import_ahead(config: Config, listeners: Iterable[ListenerOptions], *, is_worker: bool) -> None:
    """Imports what Flight, a worker (its supervisor does not wait for long) and the node of a cluster will need.

    That holds the loop for so long that its watchdog would tell of it, and other nodes would take this one for gone.

    Raises:
        StartError: a library is missing.
    """
    endpoints = [each.endpoint for each in listeners]
    is_node = bool(config.cluster.listen)
    if is_worker or (is_node and any(each.scheme == "http" for each in endpoints)):
        import_module("vmq.http.app")
    if any(each.is_flight for each in endpoints):
        check_libraries()
    if is_node:
        import_module("vmq.startup.clustering")


async def listen(
    broker: "BrokerView", name: str, options: ListenerOptions
) -> "Listener | HandedListener | HttpListener | FlightListener":
    """Opens a listener of a broker that has all of its other parts.

    Raises:
        OSError: its address cannot be had.
        CertificateError: a file of its TLS cannot be used.
        StartError: it is to serve streams, and these cannot be opened.
    """
    if options.endpoint.scheme == "http":
        if broker.share is not None:  # the supervisor has the port, and answers
            return HandedListener(name, options.endpoint, _mqtt_behind_http(broker, name, options))
        return _http(broker, name, options)
    if options.endpoint.is_flight:
        return await _flight(broker, name, options)
    if options.endpoint.is_resp:
        return await _jobs(broker, name, options)
    return await _mqtt(broker, name, options)


async def _mqtt(broker: "BrokerView", name: str, options: ListenerOptions) -> Listener:
    listener = _unopened(broker, name, options, broker.config)
    try:
        await listener.open()
    except BaseException:
        listener.close()  # the port that it was given
        raise
    return listener


def _unopened(
    broker: "BrokerView", name: str, options: ListenerOptions, config: Config
) -> Listener:
    assert broker.connections is not None, "the broker is not started"
    listener = Listener(
        name,
        config,
        broker.registry(options.mountpoint),
        broker.connections.on_opened,
        broker.connections.on_closed,
        new_client_id,
        shared=broker.share is not None,
        handshakes=broker.handshakes,
        sock=broker.take_port(name),
    )
    listener.hooks = broker.plugins.hooks_for(options.auth_plugins, options.authz_plugins)
    return listener


def _mqtt_behind_http(broker: "BrokerView", name: str, options: ListenerOptions) -> Listener:
    """Takes the connections of a listener of HTTP that turn out to speak MQTT; with the options that it has."""
    web = msgspec.structs.replace(options, url=options.endpoint.url.replace("http://", "ws://", 1))
    listeners = {**broker.config.listeners, name: web}
    config = msgspec.structs.replace(broker.config, listeners=listeners)
    return _unopened(broker, name, web, config)


async def _jobs(broker: "BrokerView", name: str, options: ListenerOptions) -> Listener:
    listener = broker.jobs.open().listener(
        name,
        broker.registry(options.mountpoint),
        broker.plugins.hooks_for(options.auth_plugins, options.authz_plugins),
        broker.handshakes,
        broker.share is not None,
    )
    try:
        await listener.open()
    except BaseException:
        listener.close()
        raise
    return listener


async def _load_http() -> None:
    """Loads what answers HTTP, in about as long as a start takes. Clients of MQTT are served meanwhile."""
    await import_late("vmq.http.app")


def _http(broker: "BrokerView", name: str, options: ListenerOptions) -> HttpListener:
    async def load_app() -> "web.Application":
        await _load_http()
        from vmq.http.app import make_app
        from vmq.http.folder import folder_app

        if options.serve is None:
            return make_app(broker, allow_remote=options.allow_remote)
        return folder_app(Path(options.serve), allow_remote=options.allow_remote)

    counters, backlog = broker.monitor.core.counters, broker.config.network.backlog
    mqtt = _mqtt_behind_http(broker, name, options)
    if options.serve is not None:
        return HttpListener(name, options, load_app, counters, backlog, mqtt)
    # Late: not everybody has a live page. It shows what is warned of from now on, before it is loaded as well.
    from vmq.http.dashboard.dashboard import dashboard_of

    dashboard = dashboard_of(broker)
    listener = HttpListener(name, options, load_app, counters, backlog, mqtt, dashboard.stop)
    dashboard.start()
    return listener


async def _flight(broker: "BrokerView", name: str, options: ListenerOptions) -> "FlightListener":
    streams = broker.open_streams()  # the first may yet be made, or is another node's
    hooks = broker.plugins.hooks_for(options.auth_plugins, options.authz_plugins)
    listener = await streams.listen(name, broker.config, hooks)
    if broker.clustering is not None:
        broker.clustering.streams.set_address(listener.location)
    return listener


def open_admin(broker: "BrokerView", folder: Path) -> AdminSocket:
    """Opens the socket by which `vmq session` and its like look into a broker.

    Raises:
        StartError: it cannot be had.
    """

    async def load_app() -> "web.Application":
        await _load_http()
        from vmq.http.app import make_admin_app

        return make_admin_app(broker)

    admin = AdminSocket(folder, load_app)
    try:
        admin.open()
    except SocketError as error:
        raise StartError(str(error)) from error
    return admin
