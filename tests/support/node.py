"""MQTT.js, where npm put it."""

import subprocess
from pathlib import Path

from tests.support.tools import require_tool

NODE = Path(__file__).resolve().parents[1] / "clients" / "node"


def installed_modules() -> Path:
    """The folder of MQTT.js, installed as the lock file says unless it is there."""
    modules = NODE / "node_modules"
    # npm writes this file last, so an installation cut short does not count.
    if not (modules / ".package-lock.json").exists():
        command = [require_tool("npm"), "ci", "--no-audit", "--no-fund"]
        subprocess.run(command, cwd=NODE, check=True, timeout=300)
    return modules
