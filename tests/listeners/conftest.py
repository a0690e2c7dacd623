"""Brokers with listeners of every kind."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import pytest

from vmq.config.text import toml_value
from vmq.testing.authority import Authority, IssuedCertificate
from vmq.testing.process import BrokerProcess


class ListenerFactory(Protocol):
    """Starts a broker with listeners: name -> options. Ends with the test."""

    def __call__(
        self,
        listeners: Mapping[str, Mapping[str, object]],
        data_dir: Path | None = None,
        rest: str = "",
    ) -> BrokerProcess: ...


@pytest.fixture
def start(tmp_path: Path) -> Iterator[ListenerFactory]:
    """A factory of brokers that a configuration file describes; `rest` is more of it."""
    with ExitStack() as stack:
        yield factory(stack, tmp_path)


def factory(stack: ExitStack, folder: Path) -> ListenerFactory:
    """Starts brokers that end with the stack; their configuration is in the folder."""

    def make(
        listeners: Mapping[str, Mapping[str, object]], data_dir: Path | None = None, rest: str = ""
    ) -> BrokerProcess:
        lines = []
        for name, options in listeners.items():
            lines.append(f"[listeners.{name}]")
            lines += [
                f"{key} = {toml_value(str(value) if isinstance(value, Path) else value)}"
                for key, value in options.items()
            ]
        file = folder / "vmq.toml"
        file.write_text("\n".join([*lines, rest, ""]))
        args = ("--config", str(file))
        return stack.enter_context(BrokerProcess.start((), data_dir, None, args))

    return make


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ca")


@pytest.fixture
def server(authority: Authority) -> IssuedCertificate:
    return authority.issue("localhost", ["localhost"])


def tls(server: IssuedCertificate, scheme: str = "tls", **options: object) -> dict[str, object]:
    """Options of a TLS listener with this certificate."""
    path = "/mqtt" if scheme == "wss" else ""
    return {
        "url": f"{scheme}://127.0.0.1:0{path}",
        "certfile": server.certfile,
        "keyfile": server.keyfile,
        **options,
    }
