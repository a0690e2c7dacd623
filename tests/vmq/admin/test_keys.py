"""API keys: made, kept as hashes, deleted."""

import hmac
import stat
from pathlib import Path

import pytest

from vmq.admin.errors import AdminError, NotFoundError, RefusedError
from vmq.admin.keys import FILE, ApiKeys, check_name


def test_a_key_opens_until_it_is_deleted(tmp_path: Path) -> None:
    keys = ApiKeys(tmp_path)
    assert not keys.find("")
    one, two = keys.create("grafana"), keys.create()
    assert keys.find(one.key)
    assert keys.find(two.key)
    assert not keys.find(one.key[:-1])
    assert not keys.find("")
    assert [(row.id, row.name) for row in keys.list_keys()] == [(one.id, "grafana"), (two.id, "")]
    keys.delete(one.id)
    assert not keys.find(one.key)
    assert keys.find(two.key)
    with pytest.raises(NotFoundError):
        keys.delete(one.id)


def test_the_disk_holds_hashes_for_the_owner_only(tmp_path: Path) -> None:
    key = ApiKeys(tmp_path).create().key
    file = tmp_path / FILE
    assert key not in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


def test_two_objects_for_one_directory_agree(tmp_path: Path) -> None:
    one, two = ApiKeys(tmp_path), ApiKeys(tmp_path)
    key = one.create()
    assert two.find(key.key)
    two.delete(key.id)
    assert not one.find(key.key)


def test_every_key_is_compared_in_constant_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = ApiKeys(tmp_path)
    made = [keys.create().key for _ in range(3)]
    compared: list[bool] = []
    compare = hmac.compare_digest

    def counted(one: str, other: str) -> bool:
        compared.append(compare(one, other))
        return compared[-1]

    monkeypatch.setattr(hmac, "compare_digest", counted)
    assert keys.find(made[0])
    assert compared == [True, False, False]


@pytest.mark.parametrize("damage", ["", "{}", "not json", '{"keys": [{"id": 1}]}'])
def test_a_damaged_file_lets_nobody_in_and_is_kept(tmp_path: Path, damage: str) -> None:
    (tmp_path / FILE).write_text(damage)
    keys = ApiKeys(tmp_path)
    for act in (lambda: keys.find("x"), keys.create, keys.list_keys):
        with pytest.raises(RefusedError, match="cannot be read"):
            act()
    assert (tmp_path / FILE).read_text() == damage


def test_a_directory_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="cannot be written"):
        ApiKeys(tmp_path / "missing").create()


@pytest.mark.parametrize("name", ["x" * 101, "a\nb", "\x1b[2J"])
def test_names_are_printable(name: str) -> None:
    with pytest.raises(AdminError, match="printable"):
        check_name(name)
    assert check_name("grafana") == "grafana"
