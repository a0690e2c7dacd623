"""Which pages may use a listener, by which names it may be called."""

import pytest

from vmq.config.listeners import ListenerOptions
from vmq.config.values import parse_origin
from vmq.listeners.origins import Origins, is_this_host

HERE = "ws://127.0.0.1:8083"
ANYWHERE = "ws://0.0.0.0:8083"


def origins(url: str, *allowed: str, proxy_protocol: bool = False) -> Origins:
    options = ListenerOptions(url=url, allowed_origins=list(allowed), proxy_protocol=proxy_protocol)
    return Origins("web", options)


@pytest.mark.parametrize("host", ["localhost", "LocalHost:80", "127.0.0.1:1", "[::1]:8888"])
def test_this_machine_may_be_named_or_addressed(host: str) -> None:
    assert is_this_host(host)


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example:80", "", "127.0.0.1.a"])
def test_other_names_are_not_this_machines(host: str) -> None:
    assert not is_this_host(host)


@pytest.mark.parametrize(
    ("text", "origin"),
    [
        ("HTTPS://App.Example", "https://app.example:443"),
        ("http://app.example:080", "http://app.example:80"),
        ("http://[::1]", "http://[::1]:80"),
        ("capacitor://localhost", "capacitor://localhost"),
        ("null", "null"),
        ("file://", "file://"),
    ],
)
def test_an_origin_is_compared_as_browsers_mean_it(text: str, origin: str) -> None:
    assert parse_origin(text) == origin


@pytest.mark.parametrize(
    "text", ["", "app.example", "https://app.example/", "https://a b", "https://a@b", "http://a:x"]
)
def test_what_is_no_origin(text: str) -> None:
    with pytest.raises(ValueError, match="is no origin"):
        parse_origin(text)


@pytest.mark.parametrize("origin", ["http://localhost:3000", "https://127.9.9.9", "http://[::1]:1"])
def test_pages_of_this_machine_may_come_on_loopback_only(origin: str) -> None:
    assert not origins(HERE).foreign([origin], ["127.0.0.1:8083"], False)
    assert origins(ANYWHERE).foreign([origin], ["10.0.0.1:8083"], False) == origin


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "http://localhost.evil.example", "null", "file://", "", "x"]
)
def test_other_pages_are_foreign(origin: str) -> None:
    for url in (HERE, ANYWHERE):
        assert origins(url).foreign([origin], ["127.0.0.1:8083"], False) == (origin or "null")
        assert not origins(url, "*").foreign([origin], [], False)


def test_one_good_page_does_not_hide_another() -> None:
    seen = ["http://localhost", "http://evil.example"]
    assert origins(HERE).foreign(seen, ["localhost"], False) == "http://evil.example"


def test_pages_that_are_listed_are_ours() -> None:
    ours = origins(ANYWHERE, "https://App.example", "null")
    for origin in ("https://app.example", "https://app.example:443", "null"):
        assert not ours.foreign([origin], ["10.0.0.1"], False)
    for origin in ("http://app.example", "https://app.example:8443", "https://a.app.example"):
        assert ours.foreign([origin], ["10.0.0.1"], False) == origin


def test_a_page_of_the_same_place_is_ours_where_no_name_can_be_made_to_point_here() -> None:
    page, by_name = "http://10.0.0.1:8083", "http://app.example"
    everywhere = origins(ANYWHERE)
    assert not everywhere.foreign([page], ["10.0.0.1:8083"], False)
    assert everywhere.foreign([page], ["10.0.0.1:8084"], False)
    # A name may have been made to point here by the page itself.
    assert everywhere.foreign([by_name], ["app.example"], False)
    assert not everywhere.foreign([by_name], ["app.example"], True)
    assert not everywhere.foreign(["https://app.example"], ["app.example:443"], True)
    assert everywhere.foreign(["http://evil.example"], ["app.example"], True)
    proxied = origins(ANYWHERE, proxy_protocol=True)
    assert not proxied.foreign([by_name], ["app.example"], False)


def test_names_of_others_are_misdirected_on_loopback() -> None:
    said = origins(HERE).misdirected(["evil.example:8083"], False)
    assert said.startswith("Host 'evil.example:8083' is not this machine's")
    assert "listeners.web.allowed_origins" in said
    for host in ("localhost:8083", "127.0.0.1", "[::1]:8083"):
        assert not origins(HERE).misdirected([host], False)
    assert not origins(HERE).misdirected(["app.example"], True)
    assert not origins(HERE, proxy_protocol=True).misdirected(["app.example"], False)
    assert not origins(HERE, "https://app.example").misdirected(["App.example:8083"], False)
    assert not origins(HERE, "*").misdirected(["app.example"], False)
    assert not origins(ANYWHERE).misdirected(["app.example"], False)
