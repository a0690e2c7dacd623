"""The installation of MQTT.js."""

import json

from tests.support.node import NODE


def test_lock_file_names_no_download_addresses() -> None:
    """Every package is pinned by its checksum, and comes from whatever registry npm is set to."""
    packages = json.loads((NODE / "package-lock.json").read_text())["packages"]
    installed = [package for path, package in packages.items() if path]
    assert installed
    assert all("integrity" in package for package in installed)
    assert not any("resolved" in package for package in installed)
