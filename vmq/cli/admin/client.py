"""Talking to a running broker: the admin socket in its data directory."""

import http.client
import json
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlencode
from weakref import WeakSet

from vmq.admin.paths import socket_of, within_limit
from vmq.cli.terminal import settings
from vmq.cli.terminal.console import FAILURE, USAGE, CliError

T = TypeVar("T")

#: Seconds without an answer, after which the broker counts as stuck.
_TIMEOUT: Final = 60.0
_PREFIX: Final = "/api/v1"


class _Connection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: Path, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path
        self._seconds = timeout
        #: `sock` is given up before an answer is read that has no length.
        self._socket: socket.socket | None = None

    def connect(self) -> None:
        self.sock = self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self._seconds)
        with within_limit(self._path) as address:
            self.sock.connect(address)

    def hang_up(self) -> None:
        """Has whoever waits for the broker wait no longer; from another thread."""
        if self._socket is not None:
            with suppress(OSError):  # it is closed
                self._socket.shutdown(socket.SHUT_RDWR)


class AdminClient:
    """The broker that runs on a data directory, which --data-dir or the configuration names.

    `selection` goes with every GET: which rows of a listing are wanted.
    """

    def __init__(
        self,
        config: Path | None,
        data_dir: str | None,
        selection: Mapping[str, object] | None = None,
    ) -> None:
        #: Seconds that the broker has to answer.
        self.timeout = _TIMEOUT
        self._selection = dict(selection or {})
        self._connections: WeakSet[_Connection] = WeakSet()
        overrides = {} if data_dir is None else {"broker.data_dir": data_dir}
        self._folder = Path(settings.load(config, overrides).config.broker.data_dir)

    def finds_broker(self) -> bool:
        """Whether a broker listens; whether it answers this user is another question."""
        connection = _Connection(socket_of(self._folder), self.timeout)
        try:
            connection.connect()
        except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError):
            return False
        except OSError:
            return True  # asking it says what is wrong
        finally:
            connection.close()
        return True

    def hang_up(self) -> None:
        """Has calls in other threads end at once, as if the broker had gone."""
        for each in set(self._connections):
            each.hang_up()

    def get(self, path: str, **parameters: object) -> Any:
        """What a GET answers; parameters that are None are left out."""
        return self._ask("GET", path + _query(self._selection | parameters))

    def delete(self, path: str, **parameters: object) -> Any:
        """What a DELETE answers."""
        return self._ask("DELETE", path + _query(parameters))

    def post(self, path: str, **parameters: object) -> Any:
        """What a POST answers."""
        return self._ask("POST", path, json.dumps(parameters).encode())

    def stream(self, path: str, silence: float) -> Iterator[str]:
        """The lines of an answer that does not end, as they come.

        Raises:
            OSError: nothing came for so many seconds.
        """
        connection = self._connection(silence)
        try:
            try:
                connection.request("GET", _PREFIX + path)
                response = connection.getresponse()
            except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError):
                raise CliError(f"no broker runs on {self._folder}; see --data-dir") from None
            if response.status != 200:
                text = str(json.loads(response.read())["error"])
                raise CliError(
                    text, USAGE if response.status == HTTPStatus.BAD_REQUEST else FAILURE
                )
            while line := response.readline():
                yield line.decode(errors="replace").rstrip("\n")
        finally:
            connection.close()

    def fetch(self, path: str, body: bytes) -> bytes:
        """What a POST of bytes answers, as it comes."""
        headers = {"Content-Type": "application/octet-stream"}
        return self._exchange("POST", path, body, headers, lambda found: found)

    def _connection(self, timeout: float) -> _Connection:
        connection = _Connection(socket_of(self._folder), timeout)
        self._connections.add(connection)
        return connection

    def _ask(self, method: str, path: str, body: bytes | None = None) -> Any:
        headers = {} if body is None else {"Content-Type": "application/json"}
        return self._exchange(method, path, body, headers, json.loads)

    def _exchange(
        self,
        method: str,
        path: str,
        body: bytes | None,
        headers: Mapping[str, str],
        read: Callable[[bytes], T],
    ) -> T:
        connection = self._connection(self.timeout)
        try:
            connection.request(method, _PREFIX + path, body, dict(headers))
            response = connection.getresponse()
            found = response.read()
            if response.status == 200:
                return read(found)
            answer = json.loads(found)
        except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError):
            raise CliError(
                f"no broker runs on {self._folder} (nobody listens on {socket_of(self._folder)}); "
                "name its data directory with --data-dir or --config"
            ) from None
        except PermissionError:
            raise CliError(
                f"the broker on {self._folder} lets only its own user ask: run this as {_owner(self._folder)}"
            ) from None
        except TimeoutError:
            raise CliError(f"the broker did not answer within {self.timeout:g} s") from None
        except (OSError, http.client.HTTPException, ValueError) as problem:
            text = getattr(problem, "strerror", None) or str(problem) or type(problem).__name__
            raise CliError(f"cannot ask the broker on {self._folder}: {text}") from None
        finally:
            connection.close()
        text = str(answer.get("error", answer)) if isinstance(answer, dict) else str(answer)
        raise CliError(text, USAGE if response.status == HTTPStatus.BAD_REQUEST else FAILURE)


def _owner(folder: Path) -> str:
    """Who may look into a folder, for people."""
    try:
        return " or ".join(dict.fromkeys([folder.owner(), "root"]))
    except (OSError, KeyError):
        return "the broker's user or root"


def _query(parameters: Mapping[str, object]) -> str:
    given = {
        name: str(value).lower() if isinstance(value, bool) else value
        for name, value in parameters.items()
        if value is not None
    }
    return "?" + urlencode(given, errors="surrogateescape") if given else ""
