"""Spark imports the package for everybody who uses any data source in Python: it must be light."""

import json
import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest

from tests.support.tools import missing

SCRIPT = """
import json, sys
import pyspark.sql.datasource, pyspark.sql.streaming.datasource
before = set(sys.modules)
import pyspark_vmq
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def test_import_brings_in_nothing_but_itself_and_the_standard_library() -> None:
    pytest.importorskip("pyspark")
    shelf = Path(__file__).parents[3] / "plugins"
    path = os.pathsep.join([str(shelf), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        check=True,
    )
    roots = {name.partition(".")[0] for name in json.loads(done.stdout)}
    assert not roots & {"pyarrow", "grpc", "vmq", "vmq_hooks", "msgspec", "numpy", "pandas"}
    assert roots - {"pyspark_vmq", "pyspark"} <= sys.stdlib_module_names


SEEN = 'import pkgutil; print("pyspark_vmq" in {each.name for each in pkgutil.iter_modules()})'


def test_spark_finds_the_package_where_vmq_is_installed(tmp_path: Path) -> None:
    """It looks for names in the folders of sys.path; the finder of an editable install shows none there."""
    try:
        distribution("vmq")
    except PackageNotFoundError:
        missing("vmq")
    bare = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-P", "-c", SEEN], cwd=tmp_path, env=bare, capture_output=True, check=True
    )
    assert done.stdout == b"True\n"
