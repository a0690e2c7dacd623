from types import SimpleNamespace
from typing import Any, cast

from vmq.config.options import Config, ListenerOptions
from vmq.config.values import Endpoint
from vmq.http.dashboard.links import http_addresses


def test_a_browser_on_this_machine_reaches_them() -> None:
    urls = ["http://0.0.0.0:1", "http://[::]:2", "http://127.0.0.1:3", "tcp://127.0.0.1:4"]
    options = {url: ListenerOptions(url=url) for url in urls}
    options["http://127.0.0.1:5"] = ListenerOptions(url="http://127.0.0.1:5", serve="/tmp")
    listeners = {
        url: SimpleNamespace(name=url, url=url, endpoint=Endpoint.parse(url)) for url in options
    }
    source = cast("Any", SimpleNamespace(listeners=listeners, config=Config(listeners=options)))
    assert http_addresses(source) == ["http://127.0.0.1:1", "http://[::1]:2", "http://127.0.0.1:3"]
