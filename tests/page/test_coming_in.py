"""Who may open the page, and who may not."""

import json
import subprocess
import sys
from pathlib import Path

from tests.page.conftest import PageBroker
from tests.page.live_page import LivePage, link_of
from tests.vmq.cli.program import here


def test_a_link_is_good_for_one_browser_once(page: LivePage, start_page: PageBroker) -> None:
    broker = start_page()
    link = link_of(broker)
    page.enter(link)
    page.says("Nothing is wrong")
    assert "token" not in page.value("location.href"), "the address keeps no trace of it"
    page.run("() => { sessionStorage.clear(); }")
    page.page.open("about:blank")
    page.page.open(link)
    page.says("the link was used already, or is too old")
    assert page.value("sessionStorage.length") == 0


def test_what_the_broker_prints_when_it_is_ready_opens_its_page(
    page: LivePage, start_page: PageBroker
) -> None:
    broker = start_page()
    found = broker.wait_out(r"^vmq page: (http://127\.0\.0\.1:\d+/#token=\S+)$")
    page.enter(found[1])
    page.says("Nothing is wrong")


def test_an_api_key_opens_it_and_a_wrong_one_does_not(
    page: LivePage, start_page: PageBroker
) -> None:
    broker = start_page()
    page.page.open(broker.http)
    page.says("vmq open")
    page.submit("input[type=password]", "vmq_wrong")
    page.says("This is no API key of this broker")
    command = ["api-key", "create", "--json", "--data-dir", str(broker.data_dir)]
    done = subprocess.run(
        [sys.executable, "-m", "vmq", *command], capture_output=True, check=True, timeout=60
    )
    page.submit("input[type=password]", json.loads(done.stdout)["key"])
    page.says("Nothing is wrong")
    page.click("Leave")
    page.says("vmq open")


USERS = """
[listeners.tcp]
url = "tcp://127.0.0.1:0"

[listeners.http]
url = "http://127.0.0.1:0"
page_users = { anna = "read" }

[plugins.vmq_passwd]
file = "passwd"
"""


def test_a_user_whom_the_listener_names_comes_in_with_the_password(
    page: LivePage, start_page: PageBroker, tmp_path: Path
) -> None:
    done = here("passwd", "add", str(tmp_path / "passwd"), "anna", "--password", "right")
    assert done.code == 0, done.err
    page.page.open(start_page(USERS, listen=()).http)
    page.type("input[name=user]", "anna")
    page.submit("input[name=password]", "wrong")
    page.says("this user with this password may not open the page")
    page.submit("input[name=password]", "right")
    page.says("Nothing is wrong")
    page.run("() => { location.reload(); }")
    page.says("Nothing is wrong")


def test_a_page_that_may_only_look_says_so(page: LivePage, start_page: PageBroker) -> None:
    page.enter(link_of(start_page()))
    links = page.value("[...document.querySelectorAll('nav a')].map(each => each.innerText)")
    assert "Trace" not in links
    assert "Cluster" not in links, "a view whose part is off is absent"
    assert links[:4] == ["What is wrong", "Now", "Clients", "Topics"]
