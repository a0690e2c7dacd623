"""Stands in for the driver: does what the options of its settings say, and notes each life.

lives      what to do in each life, with commas: fail, hopeless, kill, end, run, orphan
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

settings = json.loads(sys.stdin.buffer.readline())
folder = Path(settings["folder"])
notes = folder / "lives"
number = len(notes.read_text().splitlines()) if notes.exists() else 0
orders = settings["options"]["lives"].split(",")
order = orders[min(number, len(orders) - 1)]
child = 0
if order == "orphan":
    # As the JVM: in the driver's group, and slow to notice that the driver is gone.
    child = subprocess.Popen(["sleep", "1000"]).pid
with notes.open("a") as file:
    file.write(json.dumps({"order": order, "pid": os.getpid(), "child": child}) + "\n")
if order in {"fail", "hopeless"}:
    (folder / "progress.json").write_text(json.dumps({"error": f"it is {order}"}))
    sys.exit(1 if order == "fail" else 2)
if order == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
if order == "orphan":
    os.kill(os.getpid(), signal.SIGKILL)
if order == "run":
    sys.stdin.buffer.read()
    (folder / "stopped").touch()
