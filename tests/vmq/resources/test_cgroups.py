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


def machine(folder: Path, mount: str, groups: str, files: Mapping[str, object]) -> Path:
    """A root folder in which a process belongs to `groups`, and the groups' folders have these files."""
    own = folder / "proc/self"
    own.mkdir(parents=True)
    (own / "mountinfo").write_text(f"{DISK}\n{OTHER}\n{mount}\n")
    (own / "cgroup").write_text(groups)
    for name, text in files.items():
        file = folder / "sys/fs/cgroup" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")
    return folder


ROOT, IN_A = V2.format(top="/"), V2.format(top="/a")
BLANKS = V2.format(top=r"/my\040pods/a").replace("/sys/fs/cgroup ", r"/sys/fs/cgroup/x\040y ")
#: In version 1 each resource has groups of its own.
OF_MEMORY = "9:name=systemd:/\n4:memory:/a/b\n1:cpu,cpuacct:/x\n0::/\n"
UNIT = "mqtt.slice/vmq.service"
DOCKER = "/docker/4f0a"

#: What is mounted where, and to which group the process belongs.
PLACES = {
    "version 2": (ROOT, "0::/a/b\n"),
    "unit of systemd": (ROOT, f"0::/{UNIT}\n"),
    "container with a name space of its own": (ROOT, "0::/\n"),
    "container that sees its group at the mount point": (V2.format(top=DOCKER), f"0::{DOCKER}\n"),
    "group outside the mount": (IN_A, "0::/../b\n"),
    "paths with blanks": (BLANKS, "0::/my pods/a/b\n"),
    "version 1": (V1.format(top="/"), OF_MEMORY),
}
OWN_V1, PARENT_V1 = (f"memory/{each}/memory.limit_in_bytes" for each in ("a/b", "a"))
STAT = f"cache 0\nhierarchical_memory_limit {GIB}\nrss 1"


@pytest.mark.parametrize(
    ("place", "files", "limit"),
    [
        ("version 2", {"a/b/memory.max": GIB}, GIB),
        (
            "version 2",
            {"a/memory.max": GIB, "a/b/memory.max": "max"},
            GIB,
        ),  # only an ancestor has one
        (
            "version 2",
            {"a/memory.max": GIB, "a/b/memory.max": 2 * GIB},
            GIB,
        ),  # an ancestor has less
        ("version 2", {"a/b/memory.max": 2 * GIB, "a/b/memory.high": GIB}, GIB),
        ("version 2", {"a/memory.max": "max", "a/b/memory.max": "max"}, None),
        ("version 2", {"c/memory.max": GIB}, None),  # that of others
        (
            "unit of systemd",
            {"mqtt.slice/memory.max": 2 * GIB, f"{UNIT}/memory.max": 3 * GIB},
            2 * GIB,
        ),
        ("container with a name space of its own", {"memory.max": GIB}, GIB),
        ("container that sees its group at the mount point", {"memory.max": GIB}, GIB),
        ("group outside the mount", {"memory.max": GIB}, GIB),
        ("paths with blanks", {"x y/b/memory.max": GIB}, GIB),
        ("version 1", {OWN_V1: GIB}, GIB),
        ("version 1", {PARENT_V1: GIB, OWN_V1: NONE_V1}, GIB),  # only an ancestor has one
        (
            "version 1",
            {OWN_V1: NONE_V1, "memory/a/b/memory.stat": STAT},
            GIB,
        ),  # an ancestor that is not seen
    ],
)
def test_the_least_limit_of_a_group_and_its_ancestors_counts(
    tmp_path: Path, place: str, files: Mapping[str, object], limit: int | None
) -> None:
    assert memory_limit(machine(tmp_path, *PLACES[place], files)) == limit


def test_no_control_groups_at_all(tmp_path: Path) -> None:
    assert memory_limit(tmp_path) is None
    assert memory_limit(machine(tmp_path, DISK, "", {})) is None
