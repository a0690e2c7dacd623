"""Files of SQL: their statements and directives."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from vmq_spark.errors import PipelineError
from vmq_spark.sql import SqlPipeline, split

TEXT = """\
-- Hot sites.
-- And their averages.
--@ option threshold 30.5
--@ option count 2
--@ option name it's; so
--@ option loud true
--@ messages raw plant/+/temp
SET x = 'a;b';
--@ view temps
SELECT 1 AS value /* ; -- */ FROM raw;
--@ table averages
SELECT `a;b` FROM temps;  -- a comment; with a semicolon
--@ publish alerts plant/alerts
SELECT "x;\\";y" AS payload FROM temps WHERE value > :threshold
"""


def test_a_file_is_taken_apart() -> None:
    found = SqlPipeline.parse(TEXT)
    assert found.description == "Hot sites.\nAnd their averages."
    seen = {name: each.default for name, each in found.options.items()}
    assert seen == {"threshold": 30.5, "count": 2, "name": "it's; so", "loud": True}
    assert found.options["count"].convert("7") == 7
    assert found.messages == {"raw": "plant/+/temp"}
    outputs = [each.output and (each.output.kind, *each.output.words) for each in found.statements]
    assert outputs == [
        None,
        ("view", "temps"),
        ("table", "averages"),
        ("publish", "alerts", "plant/alerts"),
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "writes nothing"),
        ("--@ view a\nSELECT 1", "writes nothing"),
        ("--@ tables a\nSELECT 1", "'--@ tables a' is unknown; there are: option, messages"),
        ("--@\nSELECT 1", "is unknown"),
        ("--@ table\nSELECT 1", "expected: --@ table NAME"),
        ("--@ table a b\nSELECT 1", "expected: --@ table NAME"),
        ("--@ option a\n", "expected: --@ option NAME DEFAULT"),
        ("--@ messages a-b x/#\n", "'a-b' is no name in SQL"),
        ("--@ table a\n--@ table b\nSELECT 1", "two outputs"),
        ("--@ table a\n", "no statement follows"),
        ("SELECT 1;--@ table a\n-- nothing", "no statement follows"),
    ],
)
def test_what_cannot_be_is_named(text: str, said: str) -> None:
    with pytest.raises(PipelineError, match=said):
        SqlPipeline.parse(text)


PIECES = st.sampled_from(
    ["select 1", "'a;''b\\';'", '";"', "`;`", "/* ; */", "-- ;\n", "\n", "--@ view a\n"]
)


@given(st.lists(st.lists(PIECES, min_size=1).map(" ".join), min_size=1))
def test_statements_end_at_semicolons_outside_of_texts_and_comments(statements: list[str]) -> None:
    found = list(split("\n;".join(statements)))
    assert found == [*(each + "\n" for each in statements[:-1]), statements[-1]]
