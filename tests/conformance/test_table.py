"""docs/conformance.md has a test or a reason for every statement, and is up to date."""

import pytest

from tests.conformance import table


def test_all_statements_are_listed() -> None:
    """The data file has the 141 statements of the standard, in its order."""
    numbers = list(table.read_statements())
    assert len(numbers) == 141
    assert numbers[0] == "MQTT-1.5.3-1"
    assert numbers[-1] == "MQTT-7.1.2-1"


def test_every_statement_has_a_test_or_a_reason() -> None:
    """No statement is without both, none has both, and every test says what it shows."""
    assert table.missing() == []


def test_only_statements_that_exist() -> None:
    """Every numbered test belongs to a statement of the data file."""
    numbers = {table.statement_of(test) for test in table.find_tests()}
    assert numbers - {None} <= set(table.read_statements())


def test_page_is_up_to_date() -> None:
    """The page is what the generator writes now."""
    if not table.PAGE.parent.parent.joinpath("vmq").is_dir():
        pytest.skip("these tests are not in their repository")
    assert table.PAGE.read_text("utf-8") == table.build(), "run: python -m tests.conformance.table"
