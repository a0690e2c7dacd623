"""The page of links, and the manual."""

import re
from html.parser import HTMLParser
from importlib.metadata import PackageNotFoundError
from urllib.parse import urldefrag

import pytest

from tests.vmq.http.conftest import get
from vmq import __version__
from vmq.http import home
from vmq.http.home import LINKS, Topic, topics
from vmq.testing.process import BrokerProcess


class Links(HTMLParser):
    """What a page links to, and the names of its places."""

    def __init__(self, page: bytes) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.places: set[str] = set()
        self.feed(page.decode())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if tag == "a":
            self.targets.append(found["href"] or "")
        if found.get("id"):
            self.places.add(found["id"] or "")


def test_it_says_which_version_runs(web_broker: BrokerProcess) -> None:
    answer = get(web_broker.http, "/links")
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
    assert f"<h1>vmq {__version__}</h1>".encode() in answer.body


def test_nothing_that_it_links_to_is_missing(web_broker: BrokerProcess) -> None:
    links = Links(get(web_broker.http, "/links").body)
    assert {path for path, _ in LINKS} <= set(links.targets)
    for target in links.targets:
        path, place = urldefrag(target)
        answer = get(web_broker.http, path)
        assert answer.status == 200, target
        assert not place or place in Links(answer.body).places


def test_the_manual_has_the_topics_of_the_readme() -> None:
    titles = [each.title for each in topics()]
    assert {"Start it", "The first minute", "What it promises", "Guides"} <= set(titles)
    assert len({each.anchor for each in topics()}) == len(titles)
    assert Topic("The first minute", "").anchor == "the-first-minute"
    assert topics() is topics()  # read once, not with each request


async def test_text_of_the_manual_is_no_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(home, "topics", lambda: [Topic("<b>", "a < b & c")])
    answer = await home.show_manual(None)  # type: ignore[arg-type]
    assert answer.text is not None
    assert "<pre>a &lt; b &amp; c</pre>" in answer.text
    assert "<b>" not in re.sub(r"<body>.*?</body>", "", answer.text)


async def test_without_the_package_there_is_no_manual(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(home, "metadata", missing)
    monkeypatch.setattr(home, "topics", topics.__wrapped__)
    assert home.topics() == []
    answer = await home.show_home(None)  # type: ignore[arg-type]
    assert answer.text is not None
    assert "Manual" not in answer.text
