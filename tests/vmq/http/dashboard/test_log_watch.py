import logging
from collections.abc import Iterator

import pytest

from vmq.http.dashboard.log_watch import KEPT, SHOWN, LogWatch


@pytest.fixture
def watch() -> Iterator[LogWatch]:
    found = LogWatch()
    found.start()
    yield found
    found.stop()


def test_the_last_warnings_are_kept(watch: LogWatch) -> None:
    log = logging.getLogger("vmq.something")
    for number in range(KEPT + 5):
        log.warning("<b>%d</b> %s", number, "x" * 1000)
    log.error("worse")
    log.info("not told")
    rows, count = watch.take()
    assert (len(rows), count) == (KEPT, KEPT + 6)
    assert [rows[-1].level, rows[-1].text] == ["error", "worse"]
    assert rows[-2].text.startswith(f"<b>{KEPT + 4}</b>")
    assert len(rows[-2].text) == SHOWN
    assert watch.take() == ([], 0)
    watch.stop()
    log.warning("after the end")
    assert watch.take() == ([], 0)


def test_refused_logins_are_counted_by_user_and_address(
    watch: LogWatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "vmq.audit")
    log = logging.getLogger("vmq.audit")
    text = 'login refused client="%s" user="%s" peer=%s code=%d reason="%s" plugin=%s'
    for port in (1, 2):
        log.info(text, "c", "<img>", f"192.0.2.7:{port}", 5, "refused: no", "p")
    log.info(text, "c", "", "[::1]:9", 5, "refused: no", "p")
    log.info("operation name=%s", "x")
    assert dict(watch.refused.items()) == {"<img> from 192.0.2.7": 2, "no user from [::1]": 1}
