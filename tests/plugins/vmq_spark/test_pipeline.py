"""Pipelines by name and by file."""

from pathlib import Path

import pytest
from vmq_spark import pipeline
from vmq_spark.errors import PipelineError

MODULE = '''\
"""Counts.

More."""

from helper import DEFAULT


def pipeline(flow, *, topic=DEFAULT):
    flow.append(topic)
'''


def test_those_in_the_box_can_be_loaded() -> None:
    box = pipeline.in_the_box()
    assert set(box) == {"sensors"}
    for name, path in box.items():
        found = pipeline.load(pipeline.find(name))
        assert pipeline.find(name) == path
        assert found.description
        assert found.module is None
        assert all(each.description and not each.is_required for each in found.options.values())


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "my-counts.py"
    path.write_text(MODULE)
    (tmp_path / "helper.py").write_text("DEFAULT = 'x'\n")
    found = pipeline.load(pipeline.find(str(path)))
    assert found.description == "Counts.\n\nMore."
    assert found.module is not None
    assert found.options["topic"].default == "x"
    seen: list[str] = []
    found.build(seen, topic="y")
    assert seen == ["y"]


def test_a_byte_order_mark_is_no_part_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "x.sql"
    path.write_bytes(
        b"\xef\xbb\xbf-- Hot sites.\n--@ messages raw a/#\n--@ table t\nSELECT 1 FROM raw;\n"
    )
    assert pipeline.load(path).description == "Hot sites."


def test_an_unknown_one_lists_those_there_are() -> None:
    with pytest.raises(PipelineError, match=r"no pipeline 'nope'; there are: sensors, and files"):
        pipeline.find("nope")
    with pytest.raises(PipelineError, match=r"no file '/nope/x\.py'"):
        pipeline.find("/nope/x.py")


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.py", "x = 1\n", "no function 'pipeline'"),
        ("b.py", "pipeline = 1\n", "no function 'pipeline'"),
        ("c.py", "def pipeline(:\n", "cannot be imported: SyntaxError"),
        ("d.py", "1 / 0\n", "cannot be imported: ZeroDivisionError"),
        ("e.py", "def pipeline(): pass\n", "first argument"),
        ("f.sql", "SELECT 1\n", "writes nothing"),
        ("g.sql", "-" * (pipeline.LARGEST_FILE + 1), "more than"),
        ("h.sql", "\udcff", "can't decode"),
    ],
)
def test_files_that_are_none(tmp_path: Path, name: str, text: str, said: str) -> None:
    path = tmp_path / name
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(PipelineError, match=said) as caught:
        pipeline.load(path)
    assert str(path) in str(caught.value)
