import pytest

from vmq.streams.log.message import start_of


def test_where_to_begin() -> None:
    assert start_of("earliest") == {"start": "earliest"}
    assert start_of("latest") == {"start": "latest"}
    assert start_of("1500") == {"offset": 1500}
    assert start_of("2026-03-01T12:00Z") == {"time": 1_772_366_400_000_000}
    assert start_of("2026-03-01 13:00:00.25+01:00") == {"time": 1_772_366_400_250_000}
    assert start_of("2026-03-01").keys() == {"time"}


@pytest.mark.parametrize(
    "text", ["", "yesterday", "-1", "1.5", "٣", "9" * 40, "1969-01-01", "0001-01-01T00:00+23:00"]
)
def test_what_is_none_is_refused_with_what_is_accepted(text: str) -> None:
    with pytest.raises(ValueError, match="accepted: earliest, latest, an offset"):
        start_of(text)
