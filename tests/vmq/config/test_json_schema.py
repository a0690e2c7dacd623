"""Columns of a JSON schema of payloads."""

import json
from pathlib import Path
from typing import Any

import pytest

from vmq.config.columns import columns_of_file
from vmq.config.load import load
from vmq.config.sources import ConfigError

SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {
        "temp": {"type": "number"},
        "battery": {"type": ["integer", "null"]},
        "isOpen": {"type": "boolean"},
        "at": {"type": "string", "format": "date-time"},
        "site": {"type": "string"},
        "air": {"type": "object", "properties": {"humidity": {"type": "number"}}},
        "3d": {"type": "integer"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "either": {"type": ["string", "number"]},
        "any": {},
        "a.b": {"type": "string"},
    },
}
COLUMNS = {
    "temp": "double temp",
    "battery": "int64 battery",
    "is_open": "bool isOpen",
    "at": "timestamp at",
    "site": "string site",
    "air_humidity": "double air.humidity",
    "_3d": "int64 3d",
}


def written(folder: Path, content: Any) -> Path:
    path = folder / "readings.schema.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_properties_are_columns(tmp_path: Path) -> None:
    path = written(tmp_path, SCHEMA)
    assert columns_of_file(path) == COLUMNS
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert columns_of_file(path) == COLUMNS


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("{", "is no JSON"),
        ("[" * 100_000, "is no JSON"),
        ([1], "no property"),
        ({"properties": {"x": {"type": "array"}}}, "no property"),
        ({"properties": {"aB": {"type": "string"}, "a_b": {"type": "string"}}}, "two properties"),
        ({"properties": {"topic": {"type": "string"}}}, "every stream has a column"),
        ({"properties": {f"c{at}": {"type": "string"} for at in range(51)}}, "at most 50"),
        (" " * (1 << 20) + "{}", "more than"),
    ],
)
def test_what_is_no_schema_is_refused(tmp_path: Path, content: Any, why: str) -> None:
    path = written(tmp_path, content)
    with pytest.raises(ValueError, match=why) as found:
        columns_of_file(path)
    assert str(path) in str(found.value)


def test_a_schema_within_itself_has_an_end(tmp_path: Path) -> None:
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(20):
        deep = {"type": "object", "properties": {"x": deep}}
    deep["properties"]["y"] = {"type": "string"}
    assert columns_of_file(written(tmp_path, deep)) == {"y": "string y"}


def test_the_configuration_names_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, SCHEMA)
    config = tmp_path / "vmq.toml"
    config.write_text(
        f'[streams.s]\nfilters = ["s/#"]\nschema_file = "{path}"\n[streams.s.schema]\ntemp = "int32"\n'
    )
    found = load(config).config.streams["s"]
    assert found.schema == {**COLUMNS, "temp": "int32"}
    path.unlink()
    with pytest.raises(ConfigError, match=r"vmq\.toml: streams\.s\.schema_file = .*No such file"):
        load(config)
