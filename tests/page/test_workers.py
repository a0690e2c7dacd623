"""The page, and `vmq top`, of a broker of two workers: one page, with the sums of both."""

import os
import signal
from collections.abc import Iterator

import pytest

from tests.page.live_page import MARKUP, LivePage, link_of
from tests.support.wire import Wire
from tests.vmq.cli.program import here
from tests.vmq.workers.several import Several
from vmq.testing.process import BrokerProcess

CONFIG = """
[auth]
allow_anonymous = true

[listeners.tcp]
url = "tcp://127.0.0.1:0"

[listeners.http]
url = "http://127.0.0.1:0"
page_users = { anna = "read" }

[streams.readings]
filters = ["sensors/#"]
partitions = 2

[plugins.vmq_passwd]
file = "passwd"
"""
OPTIONS = ("--workers", "2", "--node-name", "n")


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Several]:
    folder = tmp_path_factory.mktemp("workers")
    file = folder / "vmq.toml"
    file.write_text(CONFIG)
    done = here("passwd", "add", str(folder / "passwd"), "anna", "--password", "right")
    assert done.code == 0, done.err
    args = ("--config", str(file), *OPTIONS)
    with BrokerProcess.start((), data_dir=folder / "data", args=args) as broker:
        yield Several(broker)


@pytest.fixture
def clients(several: Several) -> Iterator[tuple[Wire, Wire]]:
    with several.client_on(1, "one") as one, several.client_on(2, f"two{MARKUP}") as two:
        yield one, two


def row_of(number: int) -> str:
    return f"document.querySelectorAll('[aria-label=Workers] tbody tr')[{number - 1}]"


def test_the_link_that_is_printed_opens_a_page_with_the_sums(
    page: LivePage, several: Several, clients: tuple[Wire, Wire]
) -> None:
    page.enter(several.broker.wait_out(r"^vmq page: (http://\S+/#token=\S+)$")[1])
    page.says("Nothing is wrong")
    page.until("document.querySelectorAll('.tile .figure')[2].textContent === '2'")
    links = page.value("[...document.querySelectorAll('nav a')].map(each => each.innerText)")
    assert {"Streams and jobs", "Plugins"} <= set(links)
    assert not {"Cluster", "Trace"} & set(links), "there is one host, and the link is to look"
    page.go("now")
    for number in (1, 2):
        page.until(f"{row_of(number)}.innerText.split('\\t')[1] === 'running'")
        page.until(f"{row_of(number)}.innerText.split('\\t')[4] === '1'")
    page.picture("workers")
    page.go("plugins")
    page.says("vmq_passwd")
    page.go("streams")
    page.says("readings")
    assert clients


def test_topics_of_both_are_one_tree_and_the_page_speaks_mqtt(
    page: LivePage, several: Several, clients: tuple[Wire, Wire]
) -> None:
    one, two = clients
    one.subscribe(("from/the/page", 1))
    one.publish("sensors/1/t", b"x", qos=1)
    two.publish("sensors/2/t", b"y", qos=1)
    two.publish("sensors/both", b"z", qos=1)
    one.publish("sensors/both", b"kept", qos=1, retain=True)
    page.enter(link_of(several.broker), "topics")
    page.until("document.querySelector('[data-path=sensors]')?.children[2].textContent === '4'")
    page.run("() => { document.querySelector('[data-path=sensors]').click(); }")
    page.until("document.querySelectorAll('[data-path^=\"sensors/\"]').length === 3")
    both = "document.querySelector('[data-path=\"sensors/both\"]')"
    page.until(f"{both}.children[2].textContent === '2'")
    page.run(f"() => {{ {both}.click(); }}")
    page.until("document.querySelector('.messages pre')?.textContent === 'kept'")
    page.type("input[name=topic]", "from/the/page")
    page.submit("input[name=payload]", "grüße")
    one.expect_publish("from/the/page", "grüße".encode(), qos=1)
    _, listeners = several.api("GET", "/listeners")
    counts = {row["name"]: row["connections"] for row in listeners["rows"]}
    assert counts == {"tcp": 2, "http": 1}, "the page's own client is counted where it came in"


def test_a_user_whom_the_listener_names_comes_in(page: LivePage, several: Several) -> None:
    page.page.open(several.broker.http)
    page.type("input[name=user]", "anna")
    page.submit("input[name=password]", "wrong")
    page.says("this user with this password may not open the page")
    page.submit("input[name=password]", "right")
    page.says("Nothing is wrong")


def test_a_worker_that_is_killed_is_told_of_and_the_page_goes_on(
    page: LivePage, several: Several
) -> None:
    page.enter(link_of(several.broker))
    page.run("() => { window.sameDocument = true; }")
    os.kill(several.pid(2), signal.SIGKILL)
    page.says("worker ended number=2")
    page.go("now")
    page.until(f"Number({row_of(2)}.innerText.split('\\t')[3]) >= 1")
    page.until(f"{row_of(2)}.innerText.split('\\t')[1] === 'running'")
    page.go("wrong")
    page.says("Nothing is wrong")
    assert page.value("window.sameDocument"), "it is the same page still"
