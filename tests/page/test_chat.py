"""The chat of docs/examples in a real browser, as its README starts it."""

import json
from pathlib import Path

import pytest

from tests.page.conftest import PageBroker
from tests.page.live_page import MARKUP, LivePage
from tests.support.wire import Wire
from tests.vmq.cli.program import here, on, told

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
TCP = '\n[listeners.tcp]\nurl = "tcp://127.0.0.1:0"\n'


def config(name: str) -> str:
    """A configuration of the examples, at a free port, wherever the test is."""
    text = (EXAMPLES / name).read_text().replace(":8080", ":0")
    text = text.replace("docs/examples/chat", str(EXAMPLES / "chat"))
    return text.replace("words.py", str(EXAMPLES / "words.py")) + TCP


@pytest.fixture
def chat(start_page: PageBroker) -> tuple[str, Wire]:
    """The address of the chat, and somebody else in its lobby."""
    broker = start_page(config("chat.toml"), listen=())
    wire = Wire.connected(broker.tcp, "other")
    wire.subscribe(("chat/#", 1))
    return broker.http, wire


def enter(window: LivePage, address: str, name: str) -> None:
    window.page.open(address)
    window.type("#name", name)
    window.press("Enter", text="\r")
    window.until("!document.getElementById('chat').hidden")


def said(who: str, text: str) -> bytes:
    return json.dumps({"id": f"{who}-{text}", "from": who, "text": text, "at": 1}).encode()


def test_who_is_there_hears_and_is_heard(page: LivePage, chat: tuple[str, Wire]) -> None:
    address, other = chat
    enter(page, address, "anna")
    other.expect_publish("chat/lobby/here/anna", b"here", qos=1)
    page.until(
        "[...document.querySelectorAll('#people li')].some(each => each.textContent === 'anna')"
    )
    other.publish("chat/lobby/say", said(MARKUP, MARKUP), qos=1)
    page.says(MARKUP)
    assert page.value("document.title") == "Chat"
    assert page.value("document.images.length") == 0
    other.publish("chat/lobby/say", said("bob", "well, DARN it"), qos=1)
    page.says("well, **** it")
    page.submit("#text", "grüße")
    page.says("grüße")
    page.picture("chat")
    page.click("Leave")
    other.close()


#: Opens the chat once more, under the name given here.
SECOND_TAB = """async (name) => {
  window.second = window.open(location.href);
  await new Promise((done) => second.addEventListener('load', done));
  second.document.getElementById('name').value = name;
  second.document.getElementById('enter').requestSubmit();
}"""


def test_two_tabs_of_a_browser_hear_each_other_and_one_that_stays_is_there(
    page: LivePage, chat: tuple[str, Wire]
) -> None:
    address, other = chat
    here = ("chat/lobby/here/anna", b"here")
    enter(page, address, "anna")
    other.expect_publish(*here, qos=1)
    page.run(SECOND_TAB, "anna")
    other.expect_publish(*here, qos=1)
    other.publish("chat/lobby/say", said("bob", "to both"), qos=1)
    other.expect_publish("chat/lobby/say", said("bob", "to both"), qos=1)
    page.says("to both")
    page.until("second.document.body.innerText.includes('to both')")
    page.run("() => second.close()")
    other.expect_publish("chat/lobby/here/anna", b"", qos=1)
    other.expect_publish(*here, qos=1)
    page.click("Leave")
    other.expect_publish("chat/lobby/here/anna", b"", qos=1)
    other.close()


#: Has MQTT.js say that it is there after a second, and tell of that; `options` are what the page itself wants.
PINGS = """(options) => { const { connect } = mqtt; window.mqtt = { connect: (address, wanted) => {
  const client = connect(address, { ...wanted, ...options, keepalive: 1 });
  client.on('packetsend', ({ cmd }) => { window.pinged ||= cmd === 'pingreq'; });
  return client; } }; }"""


@pytest.mark.parametrize("timer", [{}, {"timerVariant": "auto"}])
def test_who_says_nothing_stays_connected(
    page: LivePage, chat: tuple[str, Wire], timer: dict[str, str]
) -> None:
    """PINGREQ is sent: by the timer that the page chooses, and by the one that MQTT.js chooses, which is a worker's."""
    address, other = chat
    page.page.open(address)
    if not timer:  # as under a policy that allows none
        page.run("() => { window.Worker = undefined; }")
    page.run(PINGS, timer)
    page.type("#name", "anna")
    page.press("Enter", text="\r")
    page.until("!document.getElementById('chat').hidden")
    page.until("window.pinged")
    other.close()


def test_history_is_the_brokers_for_a_browser_that_was_not_there(
    page: LivePage, chat: tuple[str, Wire]
) -> None:
    address, other = chat
    other.publish("chat/lobby/say", said("bob", "before you came, darn"), qos=1)
    other.expect_publish("chat/lobby/say", said("bob", "before you came, ****"), qos=1)
    enter(page, address, "anna")
    page.says("before you came, ****")
    assert page.value("[...document.querySelectorAll('#said li')].length") == 1
    other.close()


def test_a_private_room_is_for_members(
    page: LivePage, start_page: PageBroker, tmp_path: Path
) -> None:
    done = here("passwd", "add", str(tmp_path / "chat.passwd"), "anna", "--password", "right")
    assert done.code == 0, done.err
    address = start_page(config("chat-members.toml"), listen=()).http
    page.page.open(address)
    page.type("#name", "eve")
    page.submit("#room", "board")
    page.says("Not authorized")
    assert page.value("document.getElementById('chat').hidden")
    page.type("#name", "anna")
    page.submit("#password", "right")
    page.until("!document.getElementById('chat').hidden")
    page.submit("#text", "among us")
    page.says("among us")


def test_a_page_comes_back_when_the_broker_can_take_it_and_forgets_who_left(
    page: LivePage, start_page: PageBroker
) -> None:
    broker = start_page(config("chat.toml") + "\n[limits]\nmax_memory = 1\n", listen=())
    page.page.open(broker.http)
    page.type("#name", "anna")
    page.press("Enter", text="\r")
    page.says("Connection refused: Server unavailable")
    assert on(broker, "set", "limits.max_memory", "-1").code == 0
    page.until("document.getElementById('people').innerText === 'anna'")
    page.run("() => { document.getElementById('people').append('who left meanwhile'); }")
    (session,) = told(broker, "session", "list")
    assert on(broker, "session", "disconnect", session["client_id"]).code == 0
    page.until("document.getElementById('people').innerText === 'anna'")


def test_a_stranger_who_says_no_json_is_not_heard(page: LivePage, chat: tuple[str, Wire]) -> None:
    address, other = chat
    enter(page, address, "anna")
    for payload in (
        b"",
        b"x",
        b"[]",
        b"null",
        b'{"id": 1}',
        b"\xff\xfe",
        b'{"id":"a","from":"b","text":"c"}',
    ):
        other.publish("chat/lobby/say", payload, qos=1)
    other.publish("chat/lobby/say", said("bob", "last"), qos=1)
    page.says("last")
    assert page.value("[...document.querySelectorAll('#said li')].length") == 1
    other.close()
