"""The log of a table that Spark writes says which files count."""

import json
from pathlib import Path

from vmq_spark.tables import committed_files, last_commit


def write(log: Path, name: str, *entries: tuple[str, str]) -> None:
    log.mkdir(parents=True, exist_ok=True)
    lines = [
        json.dumps({"path": f"file:///t/{path}", "action": action}) for path, action in entries
    ]
    (log / name).write_text("\n".join(["v1", *lines]))


def test_what_was_committed_counts_in_its_order(tmp_path: Path) -> None:
    log = tmp_path / "_spark_metadata"
    assert committed_files(tmp_path) == []
    assert last_commit(tmp_path) == 0
    write(log, "8", ("old.parquet", "add"))
    write(log, "9.compact", ("a.parquet", "add"), ("b%20b.parquet", "add"))
    write(log, "10", ("c.parquet", "add"))
    write(log, "11", ("a.parquet", "delete"))
    write(log, ".12.tmp", ("d.parquet", "add"))
    (tmp_path / "uncommitted.parquet").touch()
    assert committed_files(tmp_path) == [Path("/t/b b.parquet"), Path("/t/c.parquet")]
    assert last_commit(tmp_path) > 0
