"""The files that run vmq as a service: systemd's, Docker's, logrotate's."""

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.support.tools import require_tool
from tests.vmq.cli.program import run
from vmq.cli.main import COMMANDS
from vmq.config.options import Config

ROOT = Path(__file__).parents[2]
UNIT = (ROOT / "config" / "vmq.service").read_text("utf-8")
DOCKERFILE = (ROOT / "config" / "Dockerfile").read_text("utf-8")
LOGROTATE = (ROOT / "config" / "vmq.logrotate").read_text("utf-8")


def unit(key: str) -> list[str]:
    """The values of a key of the unit."""
    return re.findall(rf"^{key}=(.*)$", UNIT, re.MULTILINE)


def test_the_unit_starts_vmq_with_options_that_it_has(tmp_path: Path) -> None:
    (command,) = unit("ExecStart")
    program, subcommand, *arguments = command.split()
    assert program.endswith("/bin/vmq")
    assert subcommand in COMMANDS
    arguments = [each if each.startswith("--") else str(tmp_path) for each in arguments]
    # Understood, up to what its configuration is here: a folder.
    done = run(subcommand, *arguments)
    done.tells(2, "the file cannot be read")


def test_the_unit_waits_for_readiness_reloads_and_watches() -> None:
    assert unit("Type") == ["notify"]
    assert unit("ExecReload") == ["kill -HUP $MAINPID"]
    assert int(unit("WatchdogSec")[0]) > 10
    (data_dir,) = re.findall(r"--data-dir /var/lib/(\S+)", unit("ExecStart")[0])
    assert unit("StateDirectory") == [data_dir]


@pytest.fixture
def installed(tmp_path: Path) -> str:
    """The unit with programs that exist here."""
    file = tmp_path / "vmq.service"
    file.write_text(UNIT.replace("/opt/vmq/bin/vmq", shutil.which("true") or "/bin/true"))
    return str(file)


def test_systemd_understands_the_unit(installed: str) -> None:
    command = [require_tool("systemd-analyze"), "verify", "--man=no", installed]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert "vmq.service" not in done.stderr
    assert done.returncode == 0, done.stderr


def test_systemd_finds_the_unit_hardened(installed: str) -> None:
    program = require_tool("systemd-analyze")
    command = [program, "security", "--offline=true", "--threshold=20", installed]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout[-500:] + done.stderr


def stages() -> list[list[str]]:
    """The instructions of each stage of the Dockerfile, one a line."""
    joined = re.sub(r"\\\n\s*", "", re.sub(r"^#.*\n", "", DOCKERFILE, flags=re.MULTILINE))
    lines = [line for line in joined.splitlines() if line]
    starts = [number for number, line in enumerate(lines) if line.startswith("FROM ")]
    return [lines[a:b] for a, b in zip(starts, [*starts[1:], len(lines)], strict=True)]


def test_the_image_has_no_compiler_and_no_root() -> None:
    build, final = stages()
    assert any("gcc" in line for line in build)
    assert not any("gcc" in line or "apt-get" in line for line in final)
    (user,) = [line.split()[1] for line in final if line.startswith("USER ")]
    assert user not in {"root", "0"}
    assert final.index(f"USER {user}") < final.index('ENTRYPOINT ["vmq"]')


def test_the_image_checks_its_health_with_a_command_that_there_is() -> None:
    final = stages()[-1]
    (check,) = [line for line in final if line.startswith("HEALTHCHECK ")]
    assert check.endswith('CMD ["vmq", "health", "--live"]')
    assert "health" in COMMANDS
    assert 'CMD ["start"]' in final


def test_the_image_is_built_from_what_there_is() -> None:
    ignored = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    for line in stages()[0]:
        if line.startswith("COPY "):
            for source in line.split()[1:-1]:
                assert (ROOT / source).exists()
                assert f"!{source}" in ignored


def test_the_image_has_a_wheel_that_pip_built_apart_from_it() -> None:
    """In an environment of what pyproject.toml asks for; the libraries are of the versions in the lock either way."""
    build, _ = stages()
    assert "--no-build-isolation" not in DOCKERFILE
    (steps,) = [line for line in build if "pip wheel" in line]
    assert re.search(r"pip wheel .*--wheel-dir (\S+) \..*pip install --no-index .*\1/vmq-", steps)
    environment = " ".join(line for line in build if line.startswith("ENV "))
    for name in ("PIP_CONSTRAINT", "PIP_BUILD_CONSTRAINT"):
        assert f"{name}=/source/requirements.lock" in environment


def test_the_image_gets_every_folder_with_a_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    where = project["tool"]["setuptools"]["packages"]["find"]["where"]
    folders = {"vmq" if folder == "." else folder for folder in where}
    copied = {line.split()[1] for line in stages()[0] if line.startswith("COPY ")}
    assert folders <= copied


def test_the_image_names_options_that_there_are() -> None:
    for section, option in re.findall(r"VMQ_([A-Z]+)__([A-Z_]+)=", DOCKERFILE):
        assert hasattr(getattr(Config(), section.lower()), option.lower())


def test_logrotate_sends_the_signal_that_opens_the_log_anew() -> None:
    assert "--signal=USR1" in LOGROTATE
    # systemd before 252 does not know it as --kill-whom; later ones take both.
    assert "--kill-who=main" in LOGROTATE
    assert "vmq.service" in LOGROTATE
