import time
from collections.abc import Iterator

import pytest

from vmq.streams.log.message import start_of


@pytest.fixture
def in_tokyo() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("in_tokyo")
def test_where_to_begin() -> None:
    assert start_of("earliest") == {"start": "earliest"}
    assert start_of("latest") == {"start": "latest"}
    assert start_of("1500") == {"offset": 1500}
    assert start_of("2026-03-01T12:00Z") == {"time": 1_772_366_400_000_000}
    assert start_of("2026-03-01 13:00:00.25+01:00") == {"time": 1_772_366_400_250_000}
    assert start_of("2026-03-01T12:00") == start_of("2026-03-01T12:00Z")
    assert start_of("2026-03-01") == {"time": 1_772_323_200_000_000}


@pytest.mark.parametrize(
    "text", ["", "yesterday", "-1", "1.5", "٣", "9" * 40, "1969-01-01", "0001-01-01T00:00+23:00"]
)
def test_what_is_none_is_refused_with_what_is_accepted(text: str) -> None:
    with pytest.raises(ValueError, match="accepted: earliest, latest, an offset"):
        start_of(text)
