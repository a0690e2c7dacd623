"""`vmq plugin dev`: code is taken up at each save, calls are shown, what is wrong is told; `--shadow` as a command."""

import json
import signal
from pathlib import Path

import pytest

from tests.conftest import BrokerFactory
from tests.vmq.cli.program import STUBBORN, Program, here
from vmq.testing import MqttClient

CODE = f"""
import asyncio
from vmq_hooks import Plugin, Refuse, hook
{STUBBORN}
class Gate(Plugin):
    def start(self, broker, config):
        self.task = asyncio.create_task(stubborn())

    @hook
    def auth_on_publish(self, message):
        print("asked about", message.topic, flush=True)
        if message.topic == "boom":
            raise ValueError("broken inside")
        return True if message.topic.startswith("ok/") else Refuse("not ok")
"""
NEEDS = """
import msgspec
class Needs(msgspec.Struct):
    limit: int"""


@pytest.mark.timeout(200)
def test_code_is_taken_up_at_each_save_and_each_call_is_shown(tmp_path: Path) -> None:
    file = tmp_path / "gate.py"
    file.write_text("1 / 0")
    with Program("plugin", "dev", str(file), "--listen", "tcp://127.0.0.1:0") as dev:
        url = dev.wait_out(r"^vmq ready: ").removeprefix("vmq ready: ").strip()
        dev.wait_err("ZeroDivisionError")
        dev.wait_out("waiting for a change")
        file.write_text(NEEDS + CODE.replace("(Plugin):", "(Plugin):\n    Config = Needs"))
        dev.wait_err(r"^vmq: error: plugins\.gate\.limit: missing; accepted: a whole number$")
        file.write_text(CODE)
        dev.wait_out(r"^loaded gate: auth_on_publish$")
        with MqttClient(url, "lamp") as lamp:
            lamp.publish("ok/1", "on", qos=1)
            dev.wait_out(r"^asked about ok/1$")
            dev.wait_out(r"^auth_on_publish lamp ok/1 qos=1 b'on': accepted [\d.]+ ms$")
            with pytest.raises(ConnectionError):
                lamp.publish("boom", "", qos=1)
        dev.wait_err("ValueError: broken inside")
        file.write_text(CODE.replace("ok/", "fine/"))
        dev.wait_out(r"^reloaded gate: ")
        file.write_text("def broken(")
        dev.wait_out("^the code of before goes on$")
        with MqttClient(url, "lamp") as lamp:
            lamp.publish("fine/1", "on", qos=1)
        dev.signal(signal.SIGTERM)
        assert dev.finish().code == 0


def test_what_cannot_be_a_plugin_is_told_at_once(tmp_path: Path) -> None:
    done = here("plugin", "dev", str(tmp_path / "none.py"))
    assert (done.code, "there is no such file" in done.err) == (1, True)


def test_new_code_is_tried_and_committed_by_the_command(
    tmp_path: Path, fresh_broker: BrokerFactory
) -> None:
    file = tmp_path / "gate.py"
    file.write_text(CODE)
    broker = fresh_broker(env={"VMQ_PLUGINS__GATE__PATH": str(file)})
    where = ("--data-dir", str(broker.data_dir))
    file.write_text(CODE.replace("ok/", "fine/"))
    tried = here("plugin", "reload", "gate", "--shadow", "0.2", "--json", *where)
    assert tried.code == 0
    assert json.loads(tried.out)["differing"] == 0
    assert here("plugin", "reload", "gate", "--shadow", "1", "--commit", *where).code == 2
    assert here("plugin", "reload", "gate", "--commit", *where).code == 0
    with MqttClient(broker.url, "lamp") as lamp:
        lamp.publish("fine/1", "", qos=1)
    again = here("plugin", "reload", "gate", "--commit", *where)
    again.tells(1, "--shadow SECONDS")
