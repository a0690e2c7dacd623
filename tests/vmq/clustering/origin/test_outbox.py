"""What one slot has not confirmed."""

from vmq.clustering.origin.outbox import BATCH, BATCH_BYTES, OVERHEAD, Publication, SlotOutbox


def outbox(count: int, size: int) -> SlotOutbox:
    found = SlotOutbox(3)
    for number in range(1, count + 1):
        publication = Publication(b"t", b"x" * (size - OVERHEAD - 1), 1, 1, print)
        assert found.add((7, number), "", publication) is None
    return found


def test_an_offer_is_bounded_in_messages() -> None:
    offers = outbox(2 * BATCH + 1, 10).offer((1, 1), 1, 0)
    assert [len(each.messages) for each in offers] == [BATCH, BATCH, 1]
    assert [each.index for each in offers] == [0, 1, 2]


def test_an_offer_is_bounded_in_bytes_but_for_a_message_that_is_larger() -> None:
    offers = outbox(3, BATCH_BYTES // 2).offer((1, 1), 1, 0)
    assert [len(each.messages) for each in offers] == [2, 1]
    offers = outbox(2, 2 * BATCH_BYTES).offer((1, 1), 1, 0)
    assert [len(each.messages) for each in offers] == [1, 1]
