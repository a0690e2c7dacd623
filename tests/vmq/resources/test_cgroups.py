"""Limits of control groups, as the kernel shows them in machines, units and containers of all kinds."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from vmq.resources.cgroups import memory_limit

GIB = 1 << 30
V2 = "29 22 0:26 {top} /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate"
V1 = "35 31 0:32 {top} /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory"
OTHER = "32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct"
DISK = "21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw"
#: What version 1 says where there is no limit.
NONE_V1 = str((1 << 63) - 4096)


def machine(folder: Path, mount: str, groups: str, files: Mapping[str, str]) -> Path:
    """A root folder in which a process belongs to `groups`, and the groups' folders have these files."""
    own = folder / "proc/self"
    own.mkdir(parents=True)
    (own / "mountinfo").write_text(f"{DISK}\n{OTHER}\n{mount}\n")
    (own / "cgroup").write_text(groups)
    for name, text in files.items():
        file = folder / "sys/fs/cgroup" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")
    return folder


@pytest.mark.parametrize(
    ("files", "limit"),
    (
        pytest.param({"a/b/memory.max": str(GIB)}, GIB, id="own group"),
        pytest.param(
            {"a/memory.max": str(GIB), "a/b/memory.max": "max"}, GIB, id="only at an ancestor"
        ),
        pytest.param(
            {"a/memory.max": str(GIB), "a/b/memory.max": str(2 * GIB)}, GIB, id="ancestor has less"
        ),
        pytest.param(
            {"a/b/memory.max": str(2 * GIB), "a/b/memory.high": str(GIB)}, GIB, id="memory.high"
        ),
        pytest.param({"a/memory.max": "max", "a/b/memory.max": "max"}, None, id="none"),
        pytest.param({"c/memory.max": str(GIB)}, None, id="of others"),
    ),
)
def test_version_2(tmp_path: Path, files: Mapping[str, str], limit: int | None) -> None:
    assert memory_limit(machine(tmp_path, V2.format(top="/"), "0::/a/b\n", files)) == limit


def test_a_unit_of_systemd_with_memory_max_on_its_slice(tmp_path: Path) -> None:
    groups = "0::/mqtt.slice/vmq.service\n"
    files = {
        "mqtt.slice/memory.max": str(2 * GIB),
        "mqtt.slice/vmq.service/memory.max": str(3 * GIB),
    }
    assert memory_limit(machine(tmp_path, V2.format(top="/"), groups, files)) == 2 * GIB


def test_a_container_with_a_name_space_of_its_own(tmp_path: Path) -> None:
    root = machine(tmp_path, V2.format(top="/"), "0::/\n", {"memory.max": str(GIB)})
    assert memory_limit(root) == GIB


def test_a_container_without_one_sees_its_group_at_the_mount_point(tmp_path: Path) -> None:
    own = "/docker/4f0a"
    root = machine(tmp_path, V2.format(top=own), f"0::{own}\n", {"memory.max": str(GIB)})
    assert memory_limit(root) == GIB


def test_a_group_outside_the_mount_is_bound_by_what_is_mounted(tmp_path: Path) -> None:
    root = machine(tmp_path, V2.format(top="/a"), "0::/../b\n", {"memory.max": str(GIB)})
    assert memory_limit(root) == GIB


@pytest.mark.parametrize(
    ("files", "limit"),
    (
        pytest.param({"memory/a/b/memory.limit_in_bytes": str(GIB)}, GIB, id="own group"),
        pytest.param(
            {
                "memory/a/memory.limit_in_bytes": str(GIB),
                "memory/a/b/memory.limit_in_bytes": NONE_V1,
            },
            GIB,
            id="only at an ancestor",
        ),
        pytest.param(
            {
                "memory/a/b/memory.limit_in_bytes": NONE_V1,
                "memory/a/b/memory.stat": f"cache 0\nhierarchical_memory_limit {GIB}\nrss 1",
            },
            GIB,
            id="only at an ancestor that cannot be seen",
        ),
    ),
)
def test_version_1(tmp_path: Path, files: Mapping[str, str], limit: int) -> None:
    groups = "9:name=systemd:/\n4:memory:/a/b\n1:cpu,cpuacct:/x\n0::/\n"
    assert memory_limit(machine(tmp_path, V1.format(top="/"), groups, files)) == limit


def test_paths_with_blanks(tmp_path: Path) -> None:
    mount = V2.format(top=r"/my\040pods/a").replace("/sys/fs/cgroup ", r"/sys/fs/cgroup/x\040y ")
    root = machine(tmp_path, mount, "0::/my pods/a/b\n", {"x y/b/memory.max": str(GIB)})
    assert memory_limit(root) == GIB


def test_no_control_groups_at_all(tmp_path: Path) -> None:
    assert memory_limit(tmp_path) is None
    assert memory_limit(machine(tmp_path, DISK, "", {})) is None
