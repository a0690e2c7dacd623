"""Which values of the configuration do not go together, or are not safe; types and bounds are the options' own."""

from collections.abc import Callable
from typing import Final

import msgspec

from vmq.config import cluster as config_cluster
from vmq.config import jobs as config_jobs
from vmq.config import mappings as config_mappings
from vmq.config import streams as config_streams
from vmq.config.listeners import problems_of
from vmq.config.options import Config, ListenerOptions
from vmq.config.sources import ConfigError, Problem, type_problems
from vmq.config.values import URL_FORMS, Endpoint


def check(config: Config, origin: Callable[[str], str | None] = lambda _key: None) -> None:
    """Refuse a configuration that cannot work or is not safe; `load` has done so already.

    A broker made by `Broker(Config(...))` has no other check of types and bounds: constructing a Struct makes none.

    Args:
        config: what to check.
        origin: says where the value of a key comes from, for the messages.

    Raises:
        ConfigError: with every problem found.
    """
    if problems := type_problems(config, origin):
        raise ConfigError(problems)
    check_typed(config, origin)


def check_typed(config: Config, origin: Callable[[str], str | None]) -> None:
    """`check` of a configuration whose types and bounds hold already, since it was read from its sources."""
    problems = _listener_problems(config, origin) + _chain_problems(config, origin)
    problems += _job_problems(config, origin)
    problems += _stream_problems(config, origin) + _cluster_problems(config, origin)
    if problems:
        raise ConfigError(problems)


def _chain_problems(config: Config, origin: Callable[[str], str | None]) -> list[Problem]:
    """Listeners that ask plugins of which nothing is said."""
    known = ", ".join(config.plugins) or "there is none"
    problems: list[Problem] = []
    for name, options in config.listeners.items():
        for option in ("auth_plugins", "authz_plugins"):
            value: list[str] | None = getattr(options, option)
            missing = [each for each in value or () if each not in config.plugins]
            if missing:
                key = f"listeners.{name}.{option}"
                what = f"there is no [plugins.{missing[0]}]; accepted: names of sections ({known})"
                problems.append(Problem(key, what, origin(key), value))
    return problems


def _stream_problems(config: Config, origin: Callable[[str], str | None]) -> list[Problem]:
    problems: list[Problem] = []
    for name, options in config.streams.items():
        if options.replicas > 1 and (not config.cluster.listen or config.broker.workers != 1):
            key = f"streams.{name}.replicas"
            what = "several copies take nodes of a cluster (cluster.listen), each with one worker"
            problems.append(Problem(key, f"{what}; accepted: 1", origin(key)))
        if options.archive_required and not options.archive:
            key = f"streams.{name}.archive_required"
            what = "there is no archive, and retention would delete; accepted: false, or an archive"
            problems.append(Problem(key, what, origin(key), True))
        for option, what in config_streams.problems_of(options):
            key = f"streams.{name}.{option}"
            problems.append(Problem(key, what, origin(key), getattr(options, option)))
    partitions = sum(each.partitions for each in config.streams.values())
    most = config.limits.max_partitions
    if not config.cluster.listen and 0 < most < partitions:
        key = "limits.max_partitions"
        what = f"the streams have {partitions} partitions; accepted: as many, or 0 (no limit)"
        problems.append(Problem(key, what, origin(key), most))
    return problems


def _job_problems(config: Config, origin: Callable[[str], str | None]) -> list[Problem]:
    problems: list[Problem] = []
    for name, what in config_jobs.pattern_problems(config.jobs):
        problems.append(Problem(f"jobs.{name}", what, origin(f"jobs.{name}")))
    for key, what in config_jobs.schedule_problems(config.schedules):
        problems.append(Problem(f"jobs.schedules.{key}", what, origin(f"schedules.{key}")))
    # Which functions plugins bring is known when they run: then it is checked again.
    may_have_more = any(each.enabled for each in config.plugins.values())
    known = None if may_have_more else ()
    streams = {name: each.filters for name, each in config.streams.items()}
    for key, what in config_mappings.mapping_problems(config.mappings, known, streams):
        problems.append(Problem(f"mappings.{key}", what, origin(f"mappings.{key}")))
    return problems


def _cluster_problems(config: Config, origin: Callable[[str], str | None]) -> list[Problem]:
    problems: list[Problem] = []
    for option, what in config_cluster.problems_of(config.cluster):
        key = f"cluster.{option}"
        problems.append(Problem(key, what, origin(key), getattr(config.cluster, option)))
    largest = config.session.max_packet_size
    if config.cluster.listen and largest > config_cluster.LARGEST_PACKET:
        key = "session.max_packet_size"
        what = (
            f"no larger packet could go to other nodes; accepted: at most {config_cluster.LARGEST_PACKET} "
            "with cluster.listen"
        )
        problems.append(Problem(key, what, origin(key), largest))
    return problems


def _listener_problems(config: Config, origin: Callable[[str], str | None]) -> list[Problem]:
    problems: list[Problem] = []
    taken: dict[tuple[str, int | str], str] = {}
    serves_clients = False
    for name, options in config.listeners.items():
        key = f"listeners.{name}.url"
        try:
            endpoint = options.endpoint
        except ValueError as error:
            serves_clients = True  # it is meant to
            problems.append(
                Problem(key, f"{error}; accepted: {URL_FORMS}", origin(key), options.url)
            )
            continue
        # A web page's folder comes with MQTT at /mqtt.
        serves_clients |= endpoint.is_mqtt or endpoint.is_resp or options.serve is not None
        unix = endpoint.scheme == "unix"
        address = (endpoint.host.lower(), endpoint.path if unix else endpoint.port)
        # Port 0 is a fresh port each time it is bound.
        if address[1] and address in taken:
            what = f"listeners.{taken[address]} has this address already; each needs its own"
            problems.append(Problem(key, what, origin(key), options.url))
        taken.setdefault(address, name)
        for option, what in problems_of(options, endpoint):
            key_of = f"listeners.{name}.{option}"
            value = getattr(options, option)
            shown = msgspec.UNSET if value is None or option == "keypasswd" else value
            # What is missing has no place of its own: it is missing where the listener is.
            source = origin(key if value is None else key_of)
            problems.append(Problem(key_of, what, source, shown))
        if endpoint.scheme == "http":
            problems.extend(_http_problems(name, options, endpoint, origin))
            continue
        if options.allow_remote:
            what = "only a listener of http has this option; allow_anonymous is that of the others"
            key = f"listeners.{name}.allow_remote"
            problems.append(Problem(key, what, origin(key), True))
        identified = options.use_identity_as_username
        guarded = any(each.enabled for each in config.plugins.values())
        if not (endpoint.is_loopback or identified or guarded or _anonymous_said(config, options)):
            problems.append(Problem(key, _UNSAFE.format(name=name), origin(key), options.url))
    if not serves_clients:
        which = " for clients" if config.listeners else ""
        what = f"there is no listener{which}, so no client could connect; add one, as in [listeners.tcp]"
        problems.append(Problem("listeners", what, origin("listeners")))
    return problems


def _http_problems(
    name: str, options: ListenerOptions, endpoint: Endpoint, origin: Callable[[str], str | None]
) -> list[Problem]:
    """What is wrong with a listener of http: it shows figures to whoever asks."""
    problems: list[Problem] = []
    if options.allow_anonymous is not None:
        key = f"listeners.{name}.allow_anonymous"
        what = "a listener of http has no MQTT clients; its option is allow_remote"
        problems.append(Problem(key, what, origin(key), options.allow_anonymous))
    if not endpoint.is_loopback and not options.allow_remote:
        key = f"listeners.{name}.url"
        problems.append(Problem(key, _REMOTE.format(name=name), origin(key), options.url))
    return problems


_REMOTE: Final = (
    "refused: other machines could read the broker's figures, without a password; accepted: an address on loopback "
    "(127.0.0.1, [::1], localhost), or an explicit allow_remote = true (listeners.{name}.allow_remote)"
)

_UNSAFE: Final = (
    "refused: reachable from other machines while nothing says who may connect; accepted: a plugin that does "
    "([plugins.vmq_passwd]), an address on loopback (127.0.0.1, [::1], localhost), or an explicit "
    "allow_anonymous = true (listeners.{name}.allow_anonymous, auth.allow_anonymous, or --allow-anonymous)"
)


def _anonymous_said(config: Config, options: ListenerOptions) -> bool:
    """Whether somebody wrote down that anonymous clients are wanted here: `true`, not the loopback rule."""
    if options.allow_anonymous is not None:
        return options.allow_anonymous
    return config.auth.allow_anonymous is True
