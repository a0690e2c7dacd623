"""The page of the demo in a real browser: its counter, its button, and the chat beside it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.page.live_page import MARKUP, LivePage
from tests.vmq.cli.program import Program


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[str]:
    """The address of a demo without Spark."""
    arguments = ("demo", "--no-browser", "--devices", "40")
    with Program(*arguments, env={"JAVA_HOME": str(tmp_path)}) as program:
        yield program.wait_out("^vmq demo: (.*)$").split()[-1]
        program.process.terminate()
        done = program.finish()
        assert done.code == 0, done.err
        assert b"lost 0, repeated 0" in done.out


def write(page: LivePage, text: str) -> None:
    page.submit("#chat-form input", text)


def test_the_broker_dies_and_nothing_is_lost(page: LivePage, demo: str, axe: str) -> None:
    page.page.open(demo)
    page.until("Number(document.getElementById('received').textContent.replace(',', '')) > 40")
    page.says("There is no Spark")
    page.says("you are guest")
    write(page, MARKUP)
    page.until("document.querySelectorAll('#chat li').length === 1")
    assert MARKUP in page.value("document.getElementById('chat').innerText")
    assert page.value("document.images.length") == 1, "the page's own"
    page.until("document.querySelector('button.kill').className.includes('beckon')")
    page.picture("demo")
    assert page.faults(axe) == []
    page.click("Kill the broker")
    page.says("The broker is dead")
    write(page, "are you there?")
    page.says("what you write is sent when the broker is back")
    page.until("document.querySelectorAll('#chat li').length === 2")
    page.until("document.getElementById('about').textContent.startsWith('40 of 40')")
    assert page.value("document.getElementById('lost').textContent") == "0"
    page.page.open(demo)
    page.says("are you there?")
