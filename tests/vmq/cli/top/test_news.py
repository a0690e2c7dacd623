from pathlib import Path

from tests.conftest import BrokerFactory
from tests.support.wire import Wire
from vmq.cli.admin.client import AdminClient
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
