"""A page stays small, however much there is to see."""

import json

from tests.page.conftest import PageBroker
from tests.page.live_page import LivePage, link_of
from tests.support.wire import Wire, connect_packet, publish_packet

CLIENTS = 1500
TOPICS = 20_000
MOST_NODES = 2000


def test_many_clients_and_topics_are_few_elements(page: LivePage, start_page: PageBroker) -> None:
    """Absent sessions stand for clients: as many rows, and no file descriptor."""
    broker = start_page()
    for number in range(CLIENTS):
        with Wire.connect_tcp(broker.tcp) as wire:
            wire.send(connect_packet(f"client-{number}", clean=False))
            wire.recv_packet()
    with Wire.connect_tcp(broker.tcp) as wire:
        wire.connect("publisher")
        for first in range(0, TOPICS, 500):
            wire.send(
                *(
                    publish_packet(f"t/{number % 100}/{number}", b"x")
                    for number in range(first, first + 500)
                )
            )
        wire.ping()
    page.enter(link_of(broker))
    page.go("clients")
    page.says("The first 200; there are more")
    assert page.value("document.querySelectorAll('tbody tr').length") == 200
    assert page.nodes() <= MOST_NODES
    page.go("topics")
    page.until("document.querySelector('[data-path=t]')")
    page.run("() => { document.querySelector('[data-path=t]').click(); }")
    page.until("document.querySelectorAll('[data-path]').length === 101")
    for number in range(12):
        path = json.dumps(f"t/{number}")
        page.run(
            f"() => {{ document.querySelector('[data-path=' + CSS.escape({path}) + ']').click(); }}"
        )
        page.until(
            f"document.querySelector('[data-path=' + CSS.escape({path}) + ']').ariaExpanded === 'true'"
        )
    page.until("document.body.innerText.includes('more')")
    assert page.value("document.querySelectorAll('[data-path]').length") <= 500
    assert page.nodes() <= MOST_NODES
