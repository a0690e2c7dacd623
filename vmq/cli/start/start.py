"""`vmq start`: a broker in the foreground."""

import asyncio
import logging
import os
import resource
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from vmq.cli.memory import settle_memory
from vmq.cli.start.foreground import (
    begin_anew,
    leave_nothing,
    on_requests,
    on_signal,
    say_page,
    say_ready,
    shut_because,
    until_end,
    untrack_transports,
)
from vmq.cli.terminal import settings
from vmq.cli.terminal.console import CliError
from vmq.cli.terminal.settings import ConfigOption, DataDirOption
from vmq.runtime.process import keep_files_private, keep_freed_memory, reserve_file_table
from vmq.runtime.scheduling import take_short_turns
from vmq.version import __version__, is_compiled

if TYPE_CHECKING:
    from vmq_hooks import Plugin

    from vmq.broker import Broker
    from vmq.cli.start.logs import BrokerLog
    from vmq.config.load import LoadedConfig
    from vmq.config.options import Config

#: The listener of --serve, and where it is.
SERVE: Final = "serve"
SERVE_URL: Final = "http://127.0.0.1:8080"

logger = logging.getLogger("vmq.cli")

#: Runs until a signal comes: with a configuration, the log, and what reads the configuration anew.
Serve = Callable[["Config", "BrokerLog", Callable[[], "Config"]], Coroutine[Any, Any, None]]

ListenOption = Annotated[
    list[str] | None,
    typer.Option(
        "--listen",
        metavar="URL",
        help="Listen on tcp://HOST:PORT, ws://HOST:PORT/mqtt, http://HOST:PORT or unix:///PATH (port "
        "0: any free one; tls:// and wss:// need a configuration file). May be repeated; replaces "
        "the listeners of the configuration.",
    ),
]
AnonymousOption = Annotated[
    bool,
    typer.Option(
        "--allow-anonymous",
        help="Let in clients without credentials on every listener, not on loopback only.",
    ),
]
LogLevelOption = Annotated[
    str | None,
    typer.Option(
        "--log-level", metavar="LEVEL", help="debug, info, warning or error, instead of log.level."
    ),
]

NodeNameOption = Annotated[
    str | None,
    typer.Option(
        "--node-name", metavar="NAME", help="The node's name, instead of cluster.node_name."
    ),
]
ClusterListenOption = Annotated[
    str | None,
    typer.Option(
        "--cluster-listen",
        metavar="ADDRESS",
        help="Be a node of a cluster, which others reach at tcp://HOST:PORT or ipc://PATH.",
    ),
]
JoinOption = Annotated[
    list[str] | None,
    typer.Option(
        "--join",
        metavar="ADDRESS",
        help="Ask the node there to take this one in, as long as it is alone. May be repeated.",
    ),
]
ClusterKeyOption = Annotated[
    str | None,
    typer.Option(
        "--cluster-key",
        metavar="FILE",
        help="The key that all nodes share (`vmq cluster keygen FILE`), instead of cluster.key_file.",
    ),
]
AloneOption = Annotated[
    bool,
    typer.Option(
        "--alone",
        help="Serve clients though the node has left its cluster, was taken out, or is not let in.",
    ),
]
WorkersOption = Annotated[
    str | None,
    typer.Option(
        "--workers",
        metavar="N|auto",
        help="Processes that share the listeners and are one broker, instead of broker.workers; auto: one a core.",
    ),
]

ServeOption = Annotated[
    Path | None,
    typer.Option(
        "--serve",
        metavar="FOLDER",
        help="Serve the files of this folder at http://127.0.0.1:8080, with MQTT at /mqtt of it; "
        r"\[listeners.NAME] serve does so elsewhere.",
    ),
]


def start(
    config: ConfigOption = None,
    listen: ListenOption = None,
    data_dir: DataDirOption = None,
    allow_anonymous: AnonymousOption = False,
    log_level: LogLevelOption = None,
    node_name: NodeNameOption = None,
    cluster_listen: ClusterListenOption = None,
    join: JoinOption = None,
    cluster_key: ClusterKeyOption = None,
    alone: AloneOption = False,
    workers: WorkersOption = None,
    serve: ServeOption = None,
) -> None:
    """Start a broker in the foreground.

    When every listener accepts, one line on stdout says so and names their
    addresses; the log goes to stderr, or to log.file. SIGTERM or Ctrl-C stops
    the broker cleanly, with all durable state saved; a second one ends it at
    once. SIGHUP has it read the configuration again, SIGUSR1 open its log file
    anew.

    With --workers several processes share the work and are one broker to
    clients, operators and the service manager; one that crashes is started
    again. With fewer than before, the sessions of the others move to those that
    stay.

    \b
    Examples:
      vmq start
      vmq start --config config/vmq.toml
      vmq start --listen tcp://127.0.0.1:1884 --data-dir /tmp/vmq
      vmq start --listen tcp://0.0.0.0:1883 --allow-anonymous
      vmq start --node-name b --cluster-listen tcp://10.0.0.2:44053 \\
        --cluster-key cluster.key --join tcp://10.0.0.1:44053
      vmq start --workers auto
      vmq start --serve docs/examples/chat
    """
    count = int(workers) if workers and workers.isdecimal() else workers
    said: dict[str, object] = {
        "listeners": listen or None,
        "broker.data_dir": data_dir,
        "broker.workers": count,
        "auth.allow_anonymous": allow_anonymous or None,
        "log.level": log_level,
        "cluster.node_name": node_name,
        "cluster.listen": cluster_listen,
        "cluster.join": join or None,
        "cluster.key_file": cluster_key,
        "cluster.alone": alone or None,
    }
    overrides = {key: value for key, value in said.items() if value is not None}

    def load() -> "LoadedConfig":
        return serving(settings.load(config, overrides), serve)

    _run(load, partial(_tell_put_out, config, overrides))


def _run(load: Callable[[], "LoadedConfig"], tell: Callable[[], None]) -> None:
    """Serve until a signal comes; `tell` has something to say once there is a log."""
    loaded = load()
    checked = settings.preflight(loaded)

    import uvloop

    from vmq.broker import StartError

    log = open_log(loaded.config)
    tell()
    for line in checked.warnings:
        logger.warning(line)
    raise_file_limit()
    keep_files_private()
    run = _several(loaded.config) or partial(_serve, prepared=checked.plugins.prepared)
    try:
        uvloop.run(run(loaded.config, log, partial(_load_anew, load)))
    except StartError as problem:
        raise CliError(str(problem)) from None


def _load_anew(load: Callable[[], "LoadedConfig"]) -> "Config":
    """For SIGHUP; warns as the start does."""
    from vmq.startup.preflight import spans_in_months

    loaded = load()
    for line in spans_in_months(loaded):
        logger.warning(line)
    return loaded.config


def _tell_put_out(config: Path | None, overrides: Mapping[str, object]) -> None:
    """Say which listeners of the configuration, as it is without --listen, are not opened for it."""
    from vmq.config.sources import DEFAULT

    if "listeners" not in overrides:
        return
    if config is None and not any(each.upper().startswith("VMQ_LISTENERS") for each in os.environ):
        return  # there are those that vmq ships, and to read all options anew would take a tenth of the start
    try:
        others = {key: value for key, value in overrides.items() if key != "listeners"}
        written = settings.load(config, others)
    except CliError:
        return  # they could not be opened
    for name, options in written.config.listeners.items():
        if written.origins.get(f"listeners.{name}.url", DEFAULT) != DEFAULT:
            logger.warning("put out by --listen: listener name=%s url=%s", name, options.url)


def serving(loaded: "LoadedConfig", folder: Path | None) -> "LoadedConfig":
    """The configuration with one listener more, which serves a folder; as it is without one."""
    if folder is None:
        return loaded
    from msgspec.structs import replace

    from vmq.config.options import ListenerOptions
    from vmq.config.sources import COMMAND_LINE

    options = ListenerOptions(url=SERVE_URL, serve=str(folder))
    config = replace(loaded.config, listeners={**loaded.config.listeners, SERVE: options})
    names = ListenerOptions.__struct_fields__
    origins = {f"listeners.{SERVE}.{name}": COMMAND_LINE for name in names}
    return replace(loaded, config=config, origins={**loaded.origins, **origins})


def _several(config: "Config") -> "Serve | None":
    """What runs several processes, if the configuration wants them, or the data directory still needs them."""
    from vmq.workers.lock import InUseError, forget_workers
    from vmq.workers.plan import are_needed, count_of

    count = count_of(config)
    folder = Path(config.broker.data_dir)
    if are_needed(config, count):
        from vmq.cli.start.workers import serve_workers

        return serve_workers
    try:
        forget_workers(folder)
    except InUseError as problem:
        raise CliError(str(problem)) from None
    except OSError as problem:
        raise CliError(f"cannot use the data directory: {folder}: {problem.strerror}") from None
    return None


def open_log(config: "Config", worker: int = 0) -> "BrokerLog":
    """Set up the log. Raises CliError when its file cannot be had."""
    from vmq.cli.start import logs

    options = config.log
    file = None if options.file is None else Path(options.file)
    audit = None if options.audit_file is None else Path(options.audit_file)
    limit = options.flood_limit
    try:
        return logs.configure(options.level, options.format, file, limit, worker, audit)
    except OSError as problem:
        key = "log.audit_file" if problem.filename == str(audit) else "log.file"
        raise CliError(f"{key}: cannot open {problem.filename}: {problem.strerror}") from None


async def _serve(
    config: "Config",
    log: "BrokerLog",
    load: Callable[[], "Config"],
    prepared: Mapping[str, tuple["Plugin", Any]] | None = None,
) -> None:
    """Run a broker until a signal ends it, with plugins that are prepared already."""
    stopping = asyncio.Event()
    # Before the start: imports and loading a large store take a while, and can be interrupted too.
    on_signal(stopping.set)

    from vmq.broker import Broker
    from vmq.cli.start.running import Running
    from vmq.cli.start.service import Notifier

    broker = Broker(config, admin=True, prepared=prepared, before_clients=partial(settle, config))
    broker.on_left = stopping.set
    shut = partial(shut_because, broker)
    running = Running(broker, log, Notifier(os.environ), load, shut)
    on_requests(running.reload, running.rotate)
    await broker.start()
    if not stopping.is_set():
        compiled = "yes" if is_compiled() else "no"
        logger.info("started version=%s compiled=%s", __version__, compiled)
        say_ready(broker.addresses, shut())
        say_page(_page_links(broker))
        running.ready()
        house = asyncio.create_task(running.keep_house())
        await until_end(stopping, broker)
        house.cancel()
    is_anew = not stopping.is_set()
    if not is_anew:
        running.stopping()
    await broker.stop()
    running.finish()
    logger.info("stopped")
    if is_anew and not stopping.is_set():
        begin_anew()
    await leave_nothing()


def _page_links(broker: "Broker") -> list[str]:
    """Links to the broker's live page, if a listener serves it."""
    if not any(each.startswith("http://") for each in broker.addresses):
        return []
    # Late: not everybody has such a listener.
    from vmq.http.dashboard.dashboard import dashboard_of
    from vmq.http.dashboard.links import links_of

    return links_of(dashboard_of(broker))


def serves_streams(config: "Config") -> bool:
    """Whether programs read streams of a broker, which compute beside it."""
    return any(each.endpoint.is_flight for each in config.listeners.values())


def settle(config: "Config", keeps_memory: bool = False) -> None:
    """Have the process as it is to be while it serves; takes a moment, so before clients are let in."""
    settle_memory()
    untrack_transports()
    if serves_streams(config):
        take_short_turns()
    if keeps_memory or config.cluster.listen:
        keep_freed_memory()


def raise_file_limit() -> None:
    """Allow as many connections as the system lets this process have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError) as problem:
            # macOS reports a hard limit that it does not accept.
            logger.warning("open files limited to %d: %s", soft, problem)
    reserve_file_table()
