"""The Debian package's own files. `make test-deb` installs, starts, upgrades and removes it in a fresh Debian."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DEBIAN = ROOT / "config" / "debian"
BUILD = (DEBIAN / "build.sh").read_text("utf-8")
SCRIPTS = ("postinst", "prerm", "postrm", "build.sh", "try.sh")


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_are_of_sh_and_may_run(name: str) -> None:
    path = DEBIAN / name
    assert path.read_text("utf-8").startswith("#!/bin/sh\n")
    assert re.search(r"^set -eu?$", path.read_text("utf-8"), re.MULTILINE)
    assert path.stat().st_mode & 0o111
    subprocess.run(["sh", "-n", str(path)], check=True)


def test_the_control_file_has_what_dpkg_wants() -> None:
    text = (DEBIAN / "control").read_text("utf-8")
    fields = dict(re.findall(r"^([A-Z][\w-]+): (.+)$", text, re.MULTILINE))
    assert {"Package", "Version", "Architecture", "Maintainer", "Description"} <= set(fields)
    for name in re.findall(r"@(\w+)@", text):
        assert f"s/@{name}@/" in BUILD, f"nobody fills in @{name}@"


def test_what_an_operator_may_change_is_kept_at_an_upgrade() -> None:
    conffiles = (DEBIAN / "conffiles").read_text("utf-8").split()
    assert conffiles == [
        "/etc/vmq/vmq.toml",
        "/etc/vmq/acl",
        "/etc/vmq/passwd",
        "/etc/logrotate.d/vmq",
    ]
    for name in ("vmq.toml", "acl", "passwd", "vmq.logrotate", "vmq.service"):
        assert f'"$here/../{name}"' in BUILD
        assert (ROOT / "config" / name).is_file()


def test_the_unit_starts_what_the_package_has() -> None:
    unit = (ROOT / "config" / "vmq.service").read_text("utf-8")
    assert re.search(r"^ExecStart=/opt/vmq/bin/vmq start --config /etc/vmq/vmq\.toml ", unit, re.M)
    assert '"$root/opt/vmq"' in BUILD
    assert '"$root/usr/lib/systemd/system/vmq.service"' in BUILD
