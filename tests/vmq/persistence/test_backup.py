"""A copy of the data folder of a broker that is stopped is a backup, which goes on wherever it lies."""

import shutil
from pathlib import Path

from tests.conftest import BrokerFactory
from vmq.testing import BrokerProcess, MqttClient

ENV = {"VMQ_STREAMS__S__FILTERS": '["s/#"]'}


def publish(broker: BrokerProcess, text: str) -> None:
    with MqttClient(broker.url, "publisher") as client:
        client.publish("s/1", text, qos=1, retain=True)
        client.publish("$jobs/work", text, qos=1)


def test_a_broker_goes_on_from_a_copy_in_another_folder(
    tmp_path: Path, fresh_broker: BrokerFactory
) -> None:
    lived, copy = tmp_path / "lived", tmp_path / "elsewhere" / "copy"
    broker = fresh_broker(data_dir=lived, env=ENV)
    with MqttClient(broker.url, "reader", clean=False) as reader:
        reader.subscribe("s/#", qos=1)
    publish(broker, "before")
    assert broker.terminate() == 0
    shutil.copytree(lived, copy)
    broker = fresh_broker(data_dir=lived, env=ENV)
    publish(broker, "after")
    assert broker.terminate() == 0
    broker = fresh_broker(data_dir=copy, env=ENV)
    with MqttClient(broker.url, "reader", clean=False) as reader:
        assert reader.receive().payload == b"before"
    for filter_ in ("s/#", "$replay/@s;from=earliest/s/#", "$jobs/work"):
        with MqttClient(broker.url, "new") as client:
            client.subscribe(filter_, qos=1)
            assert client.receive().payload == b"before", filter_
