"""The application as a whole: what is served to whom."""

import json
import socket
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.conftest import BrokerFactory
from tests.vmq.http.conftest import get
from vmq.admin.keys import ApiKeys
from vmq.testing.process import BrokerProcess


@pytest.mark.parametrize("path", ["/nothing", "/../etc/passwd"])
def test_other_paths_are_not_found(web_broker: BrokerProcess, path: str) -> None:
    answer = get(web_broker.http, path)
    assert answer.status == 404
    assert answer.headers["Server"] == "vmq"


@pytest.mark.parametrize(
    "request_line", [b"no http at all", b"GET / HTTP/9.9", b"GET /\0 HTTP/1.1"]
)
def test_what_is_no_http_is_not_told_who_answers(
    web_broker: BrokerProcess, request_line: bytes
) -> None:
    parts = urlsplit(web_broker.http)
    with socket.create_connection((parts.hostname, parts.port), timeout=60) as peer:
        peer.sendall(request_line + b"\r\nHost: localhost\r\n\r\n")
        head = peer.makefile("rb").read().partition(b"\r\n\r\n")[0].split(b"\r\n")
    assert b" 400 " in head[0]
    assert b"Server: vmq" in head
    assert b"X-Content-Type-Options: nosniff" in head


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8888", "localhost.evil.example"])
def test_a_page_of_another_host_cannot_read_it(web_broker: BrokerProcess, host: str) -> None:
    for path in ("/status.json", "/metrics", "/health"):
        answer = get(web_broker.http, path, {"Host": host})
        assert answer.status == 421
        assert f"not as '{host}'; its allow_remote = true".encode() in answer.body


def test_where_other_machines_are_served_any_host_name_does(
    fresh_broker: BrokerFactory, tmp_path: Path
) -> None:
    config = tmp_path / "vmq.toml"
    config.write_text(
        '[listeners.tcp]\nurl = "tcp://127.0.0.1:0"\n'
        '[listeners.http]\nurl = "http://127.0.0.1:0"\nallow_remote = true\n'
    )
    broker = fresh_broker(listen=(), args=("--config", str(config)))
    assert get(broker.http, "/health/ping", {"Host": "broker.example"}).status == 200


def test_a_body_has_room_for_the_largest_job(fresh_broker: BrokerFactory, tmp_path: Path) -> None:
    config = tmp_path / "vmq.toml"
    config.write_text(
        '[listeners.tcp]\nurl = "tcp://127.0.0.1:0"\n'
        '[listeners.http]\nurl = "http://127.0.0.1:0"\n'
        "[limits]\nmax_job_size = 2_000_000\n"
    )
    broker = fresh_broker(listen=(), args=("--config", str(config)))
    headers = {
        "x-api-key": ApiKeys(broker.data_dir).create().key,
        "Content-Type": "application/json",
    }
    with closing(HTTPConnection(urlsplit(broker.http).netloc, timeout=60)) as connection:
        body = json.dumps({"queue": "q", "body": "x" * 2_000_000})
        connection.request("POST", "/api/v1/jobs/job", body, headers)
        assert connection.getresponse().status == 200


def test_a_broker_with_open_http_connections_stops_at_once(fresh_broker: BrokerFactory) -> None:
    broker = fresh_broker(listen=("tcp://127.0.0.1:0", "http://127.0.0.1:0"))
    parts = urlsplit(broker.http)
    with closing(HTTPConnection(parts.netloc, timeout=60)) as connection:
        connection.request("GET", "/health/ping")
        assert connection.getresponse().read()
        assert broker.terminate() == 0  # the connection is kept alive meanwhile
