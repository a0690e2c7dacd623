"""The rules of a queue."""

from vmq.jobs.rules import JobRules


def test_the_last_step_of_a_back_off_holds_for_all_later_deliveries() -> None:
    rules = JobRules()
    rules.retry = [5, 30, 300]
    assert [rules.retry_after(count) for count in range(6)] == [5, 5, 30, 300, 300, 300]
