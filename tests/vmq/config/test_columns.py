"""What `[streams.NAME.schema]` may say."""

import pytest

from tests.vmq.streams.support import options
from vmq.config.columns import MOST_COLUMNS, TypedColumn, changed_types, read_column, read_columns
from vmq.config.streams import from_plain, problems_of


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("double", ("double", 0, ("temp",))),
        ("double $", ("double", 0, ())),
        ("double $.a.b", ("double", 0, ("a", "b"))),
        ("string a.b[0].c", ("string", 0, ("a", "b", 0, "c"))),
        ("int64 [3]", ("int64", 0, (3,))),
        ("bool with space.and-more", ("bool", 0, ("with space", "and-more"))),
        ("timestamp level:2", ("timestamp", 2, ())),
        ("int32 level:128", ("int32", 128, ())),
    ],
)
def test_a_column(text: str, found: tuple[str, int, tuple[str | int, ...]]) -> None:
    assert read_column("temp", text) == TypedColumn("temp", *found)


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("topic", "string", "every stream has a column 'topic'"),
        ("Temp", "double", "no name for a column"),
        ("1st", "double", "no name for a column"),
        ("a b", "double", "no name for a column"),
        ("temp", "float", "there is no type 'float'"),
        ("temp", "", "there is no type ''"),
        ("temp", "double a..b", "is no path"),
        ("temp", "double a.", "is no path"),
        ("temp", "double a[x]", "is no path"),
        ("temp", "double a$", "is no path"),
        ("temp", "double " + "a." * 600 + "a", "is no path"),
    ],
)
def test_what_is_no_column(name: str, text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read_column(name, text)
    found = list(problems_of(options(schema={name: text})))
    assert [option for option, _ in found] == ["schema"]
    with pytest.raises(ValueError, match=r"^streams\.s\.schema: "):
        from_plain("s", {"filters": ["#"], "schema": {name: text}})


def test_too_many() -> None:
    schema = {f"c{number}": "double" for number in range(MOST_COLUMNS + 1)}
    with pytest.raises(ValueError, match="51 columns; accepted: at most 50"):
        read_columns(schema)


def test_a_type_stays() -> None:
    before = {"a": "double", "b": "string x"}
    assert list(changed_types(before, {"a": "double y", "c": "bool"})) == []
    (found,) = changed_types(before, {"a": "int64", "b": "string"})
    assert found == "column 'a' is double; accepted: another name for one of another type"
