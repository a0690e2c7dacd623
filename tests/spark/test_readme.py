"""The examples of the README, run."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.spark.support import Bridge, send

README = Path(__file__).parents[2] / "plugins" / "pyspark_vmq" / "README.md"


@pytest.mark.skipif(not README.is_file(), reason="the README is part of the repository only")
def test_examples_of_the_readme_run(
    bridge: Bridge, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for site, value in (("north", 20), ("south", 40)):
        payload = f'{{"value": {value}, "unit": "C"}}'.encode()
        send(bridge.broker, [(f"plant/{site}/temp", payload)] * 3)
    text = README.read_text()
    names: dict[str, Any] = {"spark": bridge.spark}
    examples = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    for example in examples:
        code = example.replace("grpc://localhost:8815", bridge.url).replace("/tmp/", f"{tmp_path}/")
        exec(compile(code, str(README), "exec"), names)
    shown = capsys.readouterr().out
    assert len(examples) == 5
    assert "|plant/north/temp|    3|" in shown
    assert "|south|      40.0|" in shown
    assert bridge.spark.read.parquet(str(tmp_path / "temps")).count() == 6
    hot = bridge.load(topic="plant/south/hot").collect()
    assert [bytes(row.payload) for row in hot] == [b"40.0"] * 3
    assert bridge.load(topic="plant/alerts").collect()[0].qos == 2


def test_readme_lists_every_option_and_column() -> None:
    from pyspark_vmq.options import CONNECTION, SINK, SOURCE
    from pyspark_vmq.schema import COLUMNS

    if not README.is_file():
        pytest.skip("the README is part of the repository only")
    text = README.read_text()
    for name in {*CONNECTION, *SOURCE, *SINK, *COLUMNS}:
        assert f"`{name}`" in text, name
