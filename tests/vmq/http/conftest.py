"""A broker with an HTTP listener, and a look at what that answers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from http.client import HTTPConnection
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest

from tests.support.broker_process import BrokerProcess

LISTEN = ("tcp://127.0.0.1:0", "ws://127.0.0.1:0/mqtt", "http://127.0.0.1:0")


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


def get(url: str, path: str, headers: Mapping[str, str] | None = None) -> Answer:
    """One request, straight to the address: no proxy of the environment is asked."""
    parts = urlsplit(url)
    connection = HTTPConnection(parts.netloc, timeout=20)
    try:
        connection.request("GET", path, headers=dict(headers or {}))
        response = connection.getresponse()
        return Answer(response.status, dict(response.getheaders()), response.read())
    finally:
        connection.close()


@pytest.fixture(scope="module")
def web_broker() -> Iterator[BrokerProcess]:
    """A broker with TCP, WebSocket and HTTP, shared by a module's tests."""
    with BrokerProcess.start(listen=LISTEN) as process:
        yield process
