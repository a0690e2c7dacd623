"""Pages whose blocks are programs in Python: a reader who copies these gets what the page says."""

import inspect
import re
from pathlib import Path

import pytest

import vmq
from tests.support.pages import ROOT, pytest_in, python, write

TESTING = ROOT / "docs" / "testing.md"
EMBEDDING = ROOT / "docs" / "embedding.md"
GUARANTEES = ROOT / "docs" / "guarantees.md"
#: What becomes of a message whose PUBREC came, if its client fails twice to connect again.
RELEASED = """
for each in mqtt.Client, Client:
    client = each(mqtt.CallbackAPIVersion.VERSION2, "c", clean_session=False)
    client.publish("t", qos=2)
    [message] = client._out_messages.values()
    message.state = mqtt.mqtt_ms_wait_for_pubcomp
    for _ in range(2):
        client._messages_reconnect_reset()
    print(message.state.name)
"""

pytestmark = [
    pytest.mark.skipif(not TESTING.is_file(), reason="a copy of the tests alone"),
    pytest.mark.timeout(300),
]


def test_the_tests_of_the_page_pass(tmp_path: Path) -> None:
    """That they also do side by side: tests/vmq/testing/test_plugin.py."""
    names = write(TESTING, tmp_path)
    assert len(names) == 7
    text = "".join((tmp_path / name).read_text() for name in names)
    count = len(re.findall(r"^ *def test_", text, re.MULTILINE))
    assert f"{count} passed" in pytest_in(tmp_path)


def test_every_fixture_is_on_the_page() -> None:
    from vmq.testing import plugin

    fixtures = {name for name in vars(plugin) if name.startswith("vmq_")} - {"vmq_options"}
    page = TESTING.read_text(encoding="utf-8")
    assert fixtures == set(re.findall(r"^\| `(vmq_\w+)` \|", page, re.MULTILINE))
    assert "`vmq_options`" in page


def test_the_scripts_run(tmp_path: Path) -> None:
    write(EMBEDDING, tmp_path)
    for name, wanted in (
        ("script.py", r"clients connect to tcp://127\.0\.0\.1:\d+\nsensors/1/temp 20\.5\n"),
        ("keywords.py", r"2 listeners\n"),
        ("mistake.py", re.escape(said_by("mistake.py", tmp_path)) + "\n"),
    ):
        done = python(tmp_path, name)
        assert done.returncode == 0, done.stderr
        assert re.fullmatch(wanted, done.stdout), done.stdout
    assert not (tmp_path / "data").exists()


def said_by(name: str, folder: Path) -> str:
    """What a file says that it prints."""
    (found,) = re.findall(r"print\(error\)  # (.*)", (folder / name).read_text())
    return str(found)


def test_paho_publishes_twice_but_for_the_client_of_the_page(tmp_path: Path) -> None:
    text = GUARANTEES.read_text(encoding="utf-8")
    (program,) = re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    (tmp_path / "released.py").write_text(program + RELEASED)
    done = python(tmp_path, "released.py")
    assert done.stdout.split() == ["MQTT_MS_PUBLISH", "MQTT_MS_RESEND_PUBREL"], done.stderr


def test_the_web_application_passes_its_test(tmp_path: Path) -> None:
    write(EMBEDDING, tmp_path)
    assert "1 passed" in pytest_in(tmp_path, "-p", "anyio")


def test_every_public_name_is_documented() -> None:
    page = EMBEDDING.read_text(encoding="utf-8")
    for name in vmq.__all__:
        assert re.search(rf"^\| `vmq\.{name}(\(\))?` \|", page, re.MULTILINE), name
    parameters = inspect.signature(vmq.Broker).parameters
    for name in ("listen", "data_dir", "users", "acl", "plugins", "config"):
        assert name in parameters
        assert f"| `{name}` |" in page
