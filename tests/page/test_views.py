"""Each view with live data, each action, and what strangers wrote."""

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.page.conftest import PageBroker
from tests.page.live_page import MARKUP, LivePage, link_of
from tests.support.wire import Wire, connect_packet
from vmq.testing.process import BrokerProcess

LISTENERS = """
[listeners.mqtt]
url = "tcp://127.0.0.1:0"

[listeners.http]
url = "http://127.0.0.1:0"

"""
CONFIG = (
    LISTENERS
    + """
[streams.readings]
filters = ["sensors/#"]
partitions = 2

[listeners.jobs]
url = "resp://127.0.0.1:0"

[plugins.vmq_systree]
interval = 1
"""
)


@pytest.fixture
def broker(start_page: PageBroker) -> BrokerProcess:
    return start_page(CONFIG, listen=())


@pytest.fixture
def stranger(broker: BrokerProcess) -> Iterator[Wire]:
    """A client whose names are markup, who does what clients do."""
    with Wire.connect_tcp(broker.tcp) as wire:
        wire.connect(f"c{MARKUP}", username=f"u{MARKUP}", keep_alive=60, clean=False)
        wire.subscribe(("quiet/#", 1), (f"f{MARKUP}", 1))
        yield wire


def publish(wire: Wire, topic: str, payload: str = "x", retain: bool = False) -> None:
    wire.publish(topic, payload.encode(), qos=1, retain=retain)


def unharmed(page: LivePage) -> None:
    """Nothing that a stranger wrote became an element, or ran."""
    assert page.value("document.title") != "owned"
    assert page.value("[...document.images].filter(each => each.src.endsWith('/x')).length") == 0


def test_what_is_wrong_is_seen_first(
    page: LivePage, broker: BrokerProcess, stranger: Wire, axe: str
) -> None:
    page.enter(link_of(broker))
    page.says("Nothing is wrong")
    page.says("Last warnings")
    for _ in range(20):
        publish(stranger, "sensors/1")
    page.until(
        "Number(document.querySelector('.tile .figure').textContent.replace(/[^0-9.]/g, '')) > 0"
    )
    with Wire.connect_tcp(broker.tcp) as other:
        other.connect("other")
        other.publish("quiet/1", b"z" * 2000, qos=1)
    page.says("Longest unacknowledged")
    page.says(MARKUP)
    longest = (
        "[...document.querySelectorAll('.worst section')].find("
        "each => each.innerText.startsWith('Longest unacknowledged'))"
    )
    command = page.until(f"{longest}.querySelector('code').textContent")
    assert shlex.split(command) == ["vmq", "session", "disconnect", f"c{MARKUP}"]
    why = "#/why?what=receive&client_id=c"
    page.until(f"{longest}.querySelector('a').hash.startsWith('{why}')")
    stranger.send(b"\xf0\x00")
    page.says("protocol error")
    client = "new URLSearchParams(document.querySelector('.log span a').hash.split('?')[1]).get('client_id')"
    assert page.value(client) == f"c{MARKUP}"
    unharmed(page)
    page.picture("worst")
    assert page.faults(axe) == []


def test_a_plugin_that_fails_is_wrong_and_to_be_reloaded(
    page: LivePage, start_page: PageBroker, tmp_path: Path
) -> None:
    (tmp_path / "member.py").write_text(
        "from vmq_hooks import Plugin, hook\n"
        "class Member(Plugin):\n"
        "    @hook\n"
        "    def auth_on_register(self): raise OSError('away')\n"
    )
    section = '[plugins.member]\npath = "member.py"\nbreaker_failures = 1\n'
    broker = start_page(LISTENERS + section, listen=())
    with Wire.connect_tcp(broker.tcp) as wire:
        wire.ask(connect_packet("c", username="u"), b"\x20\x02\x00\x03")
    page.enter(link_of(broker))
    page.says("plugin member fails (see the log): what it decides is refused")
    page.says("vmq plugin reload member")
    unharmed(page)


def test_what_is_wrong_is_told_with_its_age_and_what_helps(
    page: LivePage, start_page: PageBroker
) -> None:
    page.enter(link_of(start_page(LISTENERS + "[limits]\nmax_memory = 20000000\n", listen=())))
    page.says("Failing: new clients are not served")
    page.says("memory is high: new clients are refused")
    page.until("/since [0-9:]+ \\([0-9]+ s\\)/.test(document.body.innerText)")
    page.says("vmq session list --sort -queue_size")
    page.until("document.querySelector('.log code')")
    lines = "[...document.querySelectorAll('.log li')]"
    assert page.value(f"{lines}.every((each) => each.querySelectorAll('a').length === 2)")
    assert page.value(f"{lines}.every((each) => each.querySelector('code'))")
    page.click("Why?")
    page.until(
        "location.hash === '#/clients?sort=-queue_size' || location.hash.startsWith('#/clients?where')"
    )
    page.go("wrong")
    page.says("failing: 1 reason")


def test_now_shows_the_last_minutes(page: LivePage, broker: BrokerProcess) -> None:
    page.enter(link_of(broker), "now")
    page.until("document.querySelectorAll('.u-wrap canvas').length === 10")
    page.click("1 h")
    page.until("location.hash.includes('span=3600')")
    page.click("Hold")
    page.until("/[?&]t=[0-9]+/.test(location.hash)")
    page.click("Table")
    page.until("document.querySelector('.chart tbody tr td')")
    held = page.value("location.hash")
    page.go("topics")
    page.run("(hash) => { location.hash = hash; }", held)
    page.says("Held at")
    page.until("document.querySelector('.uplot canvas')")
    room = (
        "document.querySelector('.uplot canvas').getBoundingClientRect().right"
        " - document.querySelector('.u-over').getBoundingClientRect().right"
    )
    assert page.value(room) >= 23, "half of 00:00:00, which may stand at the end of the axis"


def test_clients_are_found_shown_and_disconnected(
    page: LivePage, broker: BrokerProcess, stranger: Wire
) -> None:
    page.enter(link_of(broker, "--change"), "clients")
    page.says(MARKUP)
    page.submit("input[type=search]", "nobody is called so")
    page.says("Nobody.")
    page.submit("input[type=search]", 'client_id ~ "^c" and is_online = true')
    page.says("1 found.")
    page.until("document.querySelector('tr.link')")
    page.run("() => { document.querySelector('tr.link').click(); }")
    page.says(f"f{MARKUP}")
    unharmed(page)
    page.click("Disconnect")
    page.click("Disconnect", "dialog button")
    page.says("Disconnected.")
    stranger.expect_closed()
    page.says("away since")
    page.click("End session")
    page.click("End session", "dialog button")
    page.says("The session has ended.")
    page.says("Nobody.")
    page.submit("input[type=search]", "no_such_column = 1")
    page.says("no_such_column")


def test_topics_are_a_tree_and_one_of_them_is_read(
    page: LivePage, broker: BrokerProcess, stranger: Wire
) -> None:
    publish(stranger, "sensors/1/temp")
    publish(stranger, f"sensors/{MARKUP}", MARKUP, retain=True)
    page.enter(link_of(broker), "topics")
    page.until("document.querySelector('[data-path=sensors]')")
    page.run("() => { document.querySelector('[data-path=sensors]').focus(); }")
    page.press("ArrowRight")
    page.says(MARKUP)
    page.press("ArrowDown")
    chosen = json.dumps(f"sensors/{MARKUP}")
    page.until(
        f"[...document.querySelectorAll('[data-path]')].some(each => each.dataset.path === {chosen})"
    )
    page.run(
        "path => [...document.querySelectorAll('[data-path]')].find(each => each.dataset.path === path).click()",
        f"sensors/{MARKUP}",
    )
    page.says("QoS 1, retained")
    page.until(f"document.querySelector('.messages pre').textContent === {json.dumps(MARKUP)}")
    unharmed(page)
    stranger.subscribe(("from/the/page", 1))
    page.type("input[name=topic]", "from/the/page")
    page.submit("input[name=payload]", "grüße")
    stranger.expect_publish("from/the/page", "grüße".encode(), qos=1)
    page.says("Published at QoS 1")


def test_messages_come_again_after_a_restart_of_the_broker(
    page: LivePage, start_page: PageBroker
) -> None:
    first = start_page()
    address = urlsplit(first.http).netloc
    page.enter(link_of(first), "topics?topic=from/afar")
    page.says("Subscribed.")
    assert first.terminate() == 0
    page.says("Not connected: the connection ended; trying again …")
    second = start_page(listen=("tcp://127.0.0.1:0", f"http://{address}"))
    page.says("Subscribed.")
    with Wire.connected(second.tcp, "stranger") as wire:
        publish(wire, "from/afar", "here I am")
    page.says("here I am")


def test_what_the_broker_says_of_itself_is_text(
    page: LivePage, broker: BrokerProcess, stranger: Wire
) -> None:
    page.enter(link_of(broker), "topics")
    page.until("document.querySelector('[data-path=\"$SYS\"]')")
    page.run("() => { document.querySelector('[data-path=\"$SYS\"]').click(); }")
    page.until("document.querySelector('[data-path^=\"$SYS/\"]')")
    unharmed(page)
    assert stranger is not None


def test_health_alone_is_spoken(page: LivePage, broker: BrokerProcess, stranger: Wire) -> None:
    """Regions that are read aloud stay as they are while figures come in, in every view."""
    page.enter(link_of(broker, "--change"))
    page.run(
        "(regions) => { window.spoken = []; new MutationObserver(found => found.forEach(({ target }) => {"
        " const region = (target instanceof Element ? target : target.parentElement)?.closest(regions);"
        " if (region) window.spoken.push(region.outerHTML); }))"
        ".observe(document.body, {subtree: true, childList: true, characterData: true}); }",
        "[aria-live=polite], [role=status], [role=alert]",
    )
    for view in ("wrong", "now", "clients", "topics", "streams", "plugins"):
        page.go(view)
        page.run("() => { window.spoken.length = 0; }")
        publish(stranger, "sensors/1")
        page.ticks(1)
        assert page.value("window.spoken") == [], view


def test_streams_and_jobs_are_shown(page: LivePage, broker: BrokerProcess, stranger: Wire) -> None:
    publish(stranger, "sensors/1")
    stranger.subscribe((f"$share/g{MARKUP}/$stream/readings/sensors/#", 1))
    publish(stranger, f"$jobs/q{MARKUP}", "do it")
    page.enter(link_of(broker, "--change"), "streams")
    page.says("readings")
    page.says(f"q{MARKUP}")
    page.says(f"g{MARKUP}")
    page.run(
        "() => { document.querySelector('[aria-label=\"Consumer groups\"] tr.link').click(); }"
    )
    page.until(
        "(rows => rows.length && rows.every(row => row.children[1].textContent.startsWith('c<img')))"
        "([...document.querySelectorAll('[aria-label=\"Partitions of the group\"] tbody tr')])"
    )
    # What was chosen last is shown, also if the answer for the other comes after it.
    page.run(
        "() => { for (const name of ['Consumer groups', 'Streams'])"
        ' document.querySelector(`[aria-label="${name}"] tr.link`).click(); }'
    )
    page.ticks(3)
    page.until("document.querySelectorAll('[aria-label=Partitions] tbody tr').length === 2")
    page.run("() => { document.querySelector('[aria-label=\"Queues of jobs\"] tr.link').click(); }")
    page.click("Pause")
    page.says("Paused: no job comes in or goes out.")
    page.click("Resume")
    page.says("Resumed.")
    unharmed(page)


def test_plugins_are_shown_and_reloaded(page: LivePage, broker: BrokerProcess) -> None:
    page.enter(link_of(broker, "--change"), "plugins")
    page.says("vmq_systree")
    titles = "[...document.querySelectorAll('[aria-label=Hooks] th')].map(each => each.textContent)"
    assert {"calls", "accepted", "refused"} <= set(page.value(titles))
    page.run("() => { document.querySelector('tr.link').click(); }")
    page.click("Reload")
    page.says("vmq_systree: running.")
    page.click("Disable")
    page.click("Disable", "dialog button")
    page.says("vmq_systree: disabled.")


def test_why_explains_each_decision(page: LivePage, broker: BrokerProcess, stranger: Wire) -> None:
    page.enter(link_of(broker), "why")
    page.type(".bar input", f"c{MARKUP}")
    page.type(".bar label:nth-of-type(3) input", "quiet/1")
    page.click("Why?")
    page.says("It goes to")
    page.says(f"c{MARKUP}")
    unharmed(page)
    assert stranger is not None


def test_a_trace_shows_packets_as_they_come(
    page: LivePage, broker: BrokerProcess, stranger: Wire
) -> None:
    page.enter(link_of(broker, "--change"), "trace")
    page.type(".bar input", f"c{MARKUP}")
    page.click("Trace", "main button")
    page.says("Tracing")
    publish(stranger, f"t{MARKUP}", MARKUP)
    page.until("document.querySelectorAll('.trace li').length > 1")
    page.says(MARKUP[:20])
    unharmed(page)


def test_a_broker_that_is_killed_and_comes_back(
    page: LivePage, start_page: PageBroker, tmp_path_factory: pytest.TempPathFactory
) -> None:
    broker = start_page()
    address = broker.http
    page.enter(link_of(broker))
    page.run("() => { window.sameDocument = true; }")
    broker.kill()
    page.says("No news from the broker since")
    page.picture("no-news")
    start_page(listen=("tcp://127.0.0.1:0", address))
    page.says("The broker is back after")
    page.says("it was started anew")
    page.until("document.querySelector('.pulse.is-live')")
    assert page.value("window.sameDocument"), "it is the same page still"


def test_the_keyboard_reaches_everything(page: LivePage, broker: BrokerProcess) -> None:
    page.enter(link_of(broker))
    for key, view in (("2", "now"), ("3", "clients"), ("4", "topics"), ("1", "wrong")):
        page.press(key, f"Digit{key}", key)
        page.until(
            f"document.querySelector('nav a[aria-current]').getAttribute('href') === '#/{view}'"
        )
    page.run("() => { document.activeElement.blur(); }")
    page.press("Tab")
    assert page.value("document.activeElement.className") == "skip"
    page.press("Enter", text="\r")
    assert page.value("document.activeElement.id") == "main"


def test_a_phone_shows_which_view_it_is_and_more_of_a_table_than_a_long_name(
    page: LivePage, broker: BrokerProcess, stranger: Wire
) -> None:
    page.resize(360, 740)
    page.enter(link_of(broker, "--change"))
    for view in ("clients", "trace", "wrong"):
        page.go(view)
        page.until(
            "(at => at.left >= 0 && at.right < 361)"
            "(document.querySelector('nav a[aria-current]').getBoundingClientRect())"
        )
    page.go("clients")
    page.says(MARKUP)
    assert page.value("document.querySelector('tr.link td').clientWidth") <= 180
    publish(stranger, "one/topic")
    page.go("topics")
    page.until(
        "document.querySelector('[data-path=\"one\"] [data-below]').dataset.below === ' 1 topic'"
    )


def test_a_key_that_is_good_no_more_is_said_to_be(page: LivePage, broker: BrokerProcess) -> None:
    page.enter(link_of(broker))
    page.run("() => { sessionStorage.setItem('vmq.key', 'vmqpage_old'); location.reload(); }")
    page.says("The key of this page is good no more.")


VIEWS = ("wrong", "now", "clients", "topics", "streams", "plugins", "why", "trace")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_view_has_a_serious_fault(
    page: LivePage, broker: BrokerProcess, stranger: Wire, theme: str, axe: str
) -> None:
    """What axe-core calls serious or critical, in each view; and a picture of each, wide and narrow."""
    for number in range(30):
        publish(stranger, f"sensors/site-{number % 3}/device-{number}", "21.5")
    page.enter(link_of(broker, "--change"))
    page.theme(theme)
    faults = {}
    for view in VIEWS:
        page.resize(1280, 800)
        page.go(view)
        faults[view] = page.faults(axe)
        page.picture(f"{view}-{theme}")
        page.resize(400, 800)
        wide = page.value("document.documentElement.scrollWidth")
        page.picture(f"{view}-{theme}-narrow")
        assert wide <= 400, f"{view} is {wide} wide where there is room for 400"
    assert {view: found for view, found in faults.items() if found} == {}
