"""What would keep a broker from starting, told without a start: everything that it would open is looked at.

`vmq config check` says it, and `vmq start` before anything else, so that both say the same. Who uses an address or the
data directory now is not looked at: a broker that runs with this very configuration does.
"""

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryFile
from typing import Final

from msgspec import UNSET

from vmq.admin.paths import socket_of
from vmq.config.load import LoadedConfig
from vmq.config.options import Config, ListenerOptions
from vmq.config.sources import DEFAULT, ConfigError, Problem
from vmq.config.text import SECRETS
from vmq.config.values import months
from vmq.listeners.certificates import CertificateError, build_context, outdated_of
from vmq.listeners.sockets import NoSuchOwner, address_of, overlap, try_address, try_unix
from vmq.persistence.opening import store_folder
from vmq.plugins.checking import Checked
from vmq.runtime.errors import StartError
from vmq.streams.serving.opening import check_libraries, streams_folder
from vmq.workers.plan import Plan, are_needed, count_of

#: Options whose `m` is a month.
SPANS: Final = ("persistent_client_expiration", "max_age", "retention_age", "segment_age")


class Preflight:
    """What was found: `problems` keep the broker from starting, `warnings` do not; a line each.

    Args:
        loaded: the configuration, and where its values come from.
    """

    def __init__(self, loaded: LoadedConfig) -> None:
        self._loaded = loaded
        self._config = config = loaded.config
        self.warnings = spans_in_months(loaded)
        #: Addresses of this configuration, by who listens there.
        self._taken: dict[str, tuple[str, int]] = {}
        self.plugins = Checked(config, alone=not are_needed(config, count_of(config)))
        data = [*self._data_dir()]
        found = [*self._workers(), *self._log_file(), *data, *self._listeners(), *self._cluster()]
        if not data:  # else nobody may look at what lies there
            found += self._streams()
        self.problems: list[str] = [*map(str, found), *self.plugins.problems]

    def _problem(self, key: str, what: str) -> Problem:
        """A problem with the option of this key."""
        value = next((each for name, each, _ in self._loaded.items() if name == key), None)
        # Of a table within an option (`sni`) the option's source is known.
        option = ".".join(key.split(".")[:3])
        source = self._loaded.origins.get(option, DEFAULT)
        shown = UNSET if value is None or key.endswith(SECRETS) else value
        return Problem(key, what, source if source != DEFAULT else None, shown)

    def _workers(self) -> Iterator[Problem]:
        try:
            count = count_of(self._config)
            if are_needed(self._config, count):
                Plan(self._config, count)
        except ConfigError as error:
            yield from error.problems

    def _log_file(self) -> Iterator[Problem]:
        options = self._config.log
        for name, file in (("file", options.file), ("audit_file", options.audit_file)):
            if file is not None:
                yield from self._appended(f"log.{name}", Path(file).absolute())

    def _appended(self, key: str, path: Path) -> Iterator[Problem]:
        if not path.parent.is_dir():
            reason = f"there is no folder {path.parent}"
        elif not os.access(path, os.F_OK):
            reason = unwritable(path.parent)
        elif path.is_dir():
            reason = "it is a folder"
        else:
            reason = "" if os.access(path, os.W_OK) else denied(path)
        if reason:
            yield self._problem(key, f"{path}: {reason}")

    def _data_dir(self) -> Iterator[Problem]:
        folder = Path(self._config.broker.data_dir).absolute()
        for each in (folder, store_folder(self._config).absolute()):
            reason = unwritable(each)
            if reason:
                yield self._problem("broker.data_dir", f"{each}: {reason}")
                return
        socket = socket_of(folder)
        if socket.exists() and not stat.S_ISSOCK(socket.lstat().st_mode):
            yield self._problem("broker.data_dir", f"{socket} is in the way: it is no socket")

    def _listeners(self) -> Iterator[Problem]:
        for name, options in self._config.listeners.items():
            key = f"listeners.{name}"
            if options.serve is not None and not Path(options.serve).is_dir():
                yield self._problem(f"{key}.serve", "there is no such folder; accepted: a folder")
            try:
                self._try_listener(name, options)
            except CertificateError as error:
                yield self._problem(f"{key}.{error.option}", error.what)
            except NoSuchOwner as error:
                yield self._problem(f"{key}.unix_owner", str(error.strerror))
            except OSError as error:
                what = f"cannot listen there: {error.strerror or error}"
                yield self._problem(f"{key}.url", what)

    def _try_listener(self, name: str, options: ListenerOptions) -> None:
        endpoint = options.endpoint
        if endpoint.is_tls:
            build_context(options, "mqtt")
            self.warnings += (f"listeners.{name}.{line}" for line in outdated_of(options))
        if endpoint.scheme == "unix":
            try_unix(endpoint.path, options.unix_owner)
        else:
            self._try_address(f"listeners.{name}", endpoint.host, endpoint.port)

    def _try_address(self, owner: str, host: str, port: int) -> None:
        """Looks whether its owner can listen at an address; OSError says why not."""
        try_address(host, port)
        address = address_of(host, port)
        for other, its in self._taken.items():
            if port and overlap(address, its):
                raise OSError(errno.EADDRINUSE, f"{other} has this address; each needs its own")
        self._taken[owner] = address

    def _cluster(self) -> Iterator[Problem]:
        options = self._config.cluster
        if not options.listen:
            return
        # Late: most brokers are no nodes and need no ZeroMQ.
        from vmq.clustering.node.key import read_key
        from vmq_cluster.errors import ClusterError

        if options.key_file is not None:
            try:
                read_key(Path(options.key_file), self.warnings.append)
            except ClusterError as error:
                yield self._problem("cluster.key_file", str(error))
        scheme, _, rest = options.listen.partition("://")
        host, _, port = rest.rpartition(":")
        try:
            if scheme == "ipc":
                try_unix(rest, None)
            elif host != "*":
                self._try_address("cluster.listen", host.strip("[]"), int(port))
        except OSError as error:
            yield self._problem("cluster.listen", f"cannot listen there: {error.strerror or error}")

    def _streams(self) -> Iterator[Problem]:
        config, folder = self._config, streams_folder(self._config)
        # The first stream may be made while the broker runs, or be another node's.
        is_served = any(each.endpoint.is_flight for each in config.listeners.values())
        if is_served or config.streams or self.plugins.streams or folder.is_dir():
            try:
                check_libraries()
            except StartError as error:
                yield self._problem("streams", str(error))
                return
            reason = unwritable(folder)
            if reason:
                yield self._problem("broker.data_dir", f"{folder.absolute()}: {reason}")
            yield from self._fewer_partitions(config, folder)

    def _fewer_partitions(self, config: Config, folder: Path) -> Iterator[Problem]:
        """Streams that have more partitions on disk than they are to have, other types, or another version."""
        from vmq.streams.definition import check_before
        from vmq.streams.log.errors import StreamError

        for name, options in config.streams.items():
            try:
                check_before(folder / name, options)
            except StreamError as error:
                text = str(error)
                keys = (f"streams.{name}.schema", f"streams.{name}.partitions")
                key = next(filter(text.startswith, keys), "broker.data_dir")
                stated = text.partition(": ")[0] if text.startswith(key) else ""
                yield self._problem(key, text.removeprefix(stated).removeprefix(": "))


def spans_in_months(loaded: LoadedConfig) -> list[str]:
    """A line for each span in months, which may have been meant as minutes."""
    return [
        f"{key}: {read_as}"
        for key, value, _ in loaded.items()
        if key.rpartition(".")[2] in SPANS and (read_as := months(str(value)))
    ]


def denied(path: Path) -> str:
    """Why something that is there may not be written."""
    is_read_only = os.statvfs(path).f_flag & os.ST_RDONLY
    return "the file system is read-only" if is_read_only else "permission denied"


def unwritable(folder: Path) -> str:
    """Why a folder cannot be made, or nothing can be written into it; "" if it can."""
    for each in (folder, *folder.absolute().parents):
        try:
            is_folder = stat.S_ISDIR(each.stat().st_mode)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            return error.strerror or str(error)
        if not is_folder:
            return "it is no folder" if each == folder else f"{each} is no folder"
        if not os.access(each, os.R_OK | os.W_OK | os.X_OK):
            return denied(each) if each == folder else f"{denied(each)} in {each}"
        try:
            # To root everything is permitted, and some file systems take nothing all the same.
            with TemporaryFile(dir=each):
                return ""
        except OSError as error:
            return f"no file can be made in {each}: {error.strerror or error}"
    return "there is no such file system"
