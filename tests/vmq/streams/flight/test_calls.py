"""Places of calls: those of peers that stall go to who asks for one."""

import pytest
from pyarrow import flight

from vmq.streams.flight import calls
from vmq.streams.flight.calls import PATIENCE, CallPlaces, Slot

FULL = pytest.raises(flight.FlightUnavailableError, match="too many reads at a time")


class Clock:
    """Tells the time that it is set to."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def places(clock: Clock) -> CallPlaces:
    return CallPlaces(1, clock)


def test_whose_peer_stalls_gives_its_place_to_who_asks(places: CallPlaces, clock: Clock) -> None:
    stalled = Slot(places, "reads")
    with FULL, stalled.waiting():
        clock.now += PATIENCE
        other = Slot(places, "reads")
    other.free()
    stalled.free()
    assert places.free == 1


def test_who_comes_back_goes_on_where_there_is_room(places: CallPlaces, clock: Clock) -> None:
    stalled = Slot(places, "reads")
    with stalled.waiting():
        clock.now += PATIENCE
        Slot(places, "reads").free()
        assert places.free == 1
    assert places.free == 0


def test_who_works_keeps_its_place_however_long_that_takes(
    places: CallPlaces, clock: Clock
) -> None:
    busy = Slot(places, "reads")
    with busy.waiting():
        clock.now += PATIENCE - 1
        with FULL:
            Slot(places, "reads")
    clock.now += 10 * PATIENCE
    with FULL:
        Slot(places, "reads")
    busy.free()
    assert places.free == 1


def test_so_many_may_stall_as_there_are_threads_for(
    places: CallPlaces, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "MOST_STALLED", 1)
    slots = [Slot(places, "reads")]
    places.wait(id(slots[0]))
    clock.now += PATIENCE
    slots.append(Slot(places, "reads"))
    places.wait(id(slots[1]))
    clock.now += PATIENCE
    with FULL:
        Slot(places, "reads")
    slots.pop(0).free()
    Slot(places, "reads").free()
