"""Entries of checkpoints that a killed driver left without a name go; all others stay."""

from pathlib import Path

from vmq_spark.checkpoints import drop_unfinished


def test_what_has_no_name_yet_goes(tmp_path: Path) -> None:
    unfinished = [".0.566d75c1-95c7-4a81.tmp", "..0.566d75c1-95c7-4a81.tmp.crc"]
    finished = ["0", ".0.crc", "1"]
    for log in ("alerts/offsets", "alerts/commits", "readings/offsets"):
        folder = tmp_path / log
        folder.mkdir(parents=True)
        for name in (*unfinished, *finished):
            (folder / name).touch()
    state = tmp_path / "alerts" / "state" / ".1.delta.tmp"
    state.parent.mkdir()
    state.touch()

    drop_unfinished(tmp_path)

    for log in ("alerts/offsets", "alerts/commits", "readings/offsets"):
        assert sorted(each.name for each in (tmp_path / log).iterdir()) == sorted(finished)
    assert state.exists(), "what else there is, is Spark's to look after"


def test_without_a_checkpoint_there_is_nothing_to_do(tmp_path: Path) -> None:
    drop_unfinished(tmp_path / "none")
