"""Job ids: their form, and what their last digits tell."""

import random

import pytest

from vmq.jobs.ids import JobIds, is_job_id, is_repeated


def make() -> JobIds:
    return JobIds(b"0123abcd", random.Random(1).randbytes)


def test_an_id_has_the_form_of_disques_and_fits_into_a_topic_level() -> None:
    job_id = make().new(86_400, True)
    assert len(job_id) == 40
    assert job_id.startswith(b"D-0123abcd-")
    assert job_id.endswith(b"-05a1")  # 1,440 minutes, made odd
    assert is_job_id(job_id)


def test_no_two_are_the_same_and_none_has_what_topics_cannot() -> None:
    ids = make()
    many = {ids.new(60, True) for _ in range(5000)}
    assert len(many) == 5000
    assert not any(set(each) & set(b"+/#") for each in many)


@pytest.mark.parametrize(
    ("ttl", "repeats", "end"),
    [
        (1, True, b"0001"),
        (1, False, b"0000"),
        (120, False, b"0002"),
        (120, True, b"0003"),
        (0xFFFF_FFFF, True, b"ffff"),
        (0xFFFF_FFFF, False, b"fffe"),
    ],
)
def test_the_end_tells_minutes_and_class(ttl: int, repeats: bool, end: bytes) -> None:
    job_id = make().new(ttl, repeats)
    assert job_id[-4:] == end
    assert is_repeated(job_id) is repeats


def test_ever_new_times_to_live_fill_nothing() -> None:
    ids = make()
    for ttl in range(1, 5000):
        assert is_job_id(ids.new(ttl, True))
    assert len(ids.suffixes) <= 1001


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"D-0123abcd-",
        b"X-0123abcd-LYyQMK4fgYJLigrQnwiD1GW2-05a1",
        b"D-0123abcd_LYyQMK4fgYJLigrQnwiD1GW2-05a1",
        b"D-0123abcx-LYyQMK4fgYJLigrQnwiD1GW2-05a1",
        b"D-0123abcd-LYyQMK4fg*JLigrQnwiD1GW2-05a1",
        b"D-0123abcd-LYyQMK4fgYJLigrQnwiD1GW2-05x1",
    ],
)
def test_what_is_no_id(text: bytes) -> None:
    assert not is_job_id(text)


def test_disques_own_ids_are_ids() -> None:
    assert is_job_id(b"D-dcb833cf-8YL1NT17e9+wsA/09NqxscQI-05a1")
