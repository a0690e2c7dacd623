import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.conftest import BrokerFactory
from tests.support.wire import Wire
from vmq.admin.paths import socket_of
from vmq.cli.admin.client import AdminClient
from vmq.cli.terminal.console import CliError
from vmq.cli.top.news import BrokerNews


def test_a_broker_is_followed_until_it_is_gone_and_when_it_is_back(
    fresh_broker: BrokerFactory, tmp_path: Path
) -> None:
    folder = tmp_path / "data"
    broker = fresh_broker(data_dir=folder)
    news = BrokerNews(AdminClient(None, str(folder)))
    assert news.finds_broker()
    told = news.follow()
    assert next(told).kind == "hello"
    kinds = {next(told).kind for _ in range(6)}
    assert {"tick", "worst"} <= kinds
    with Wire.connected(broker.tcp, "me"):
        assert [row["client_id"] for row in news.sessions("client_id")] == ["me"]
    broker.terminate()
    while (last := next(told)).kind != "gone":
        pass
    assert last.what == "the broker stopped"
    assert not news.finds_broker()
    fresh_broker(data_dir=folder)
    while next(told).kind != "hello":
        pass


@pytest.mark.parametrize(
    "wait",
    [lambda news: list(news.follow()), lambda news: news.sessions("")],
    ids=["told", "asked"],
)
def test_nobody_waits_on_for_a_broker_that_does_not_answer(
    tmp_path: Path, wait: Callable[[BrokerNews], object]
) -> None:
    news = BrokerNews(AdminClient(None, str(tmp_path)))
    with socket.socket(socket.AF_UNIX) as server, ThreadPoolExecutor() as threads:
        server.bind(str(socket_of(tmp_path)))
        server.listen()
        waiting = threads.submit(wait, news)
        asked, _ = server.accept()
        with asked:
            assert asked.recv(3) == b"GET"
            news.close()
            assert isinstance(waiting.exception(30), CliError | None)
