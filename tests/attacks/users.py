"""Brokers whose users have passwords, as argon2 hashes them."""

from pathlib import Path

from vmq_passwd.hashes import make_hash

from tests.conftest import BrokerFactory
from vmq.testing.process import BrokerProcess

PASSWORD = b"correct horse"


def write_users(path: Path, devices: int) -> Path:
    """A file of users d0, d1 ... and alice. One hash stands for all, since a name is part of what is checked."""
    line = make_hash(PASSWORD)
    names = ["alice", *(f"d{number}" for number in range(devices))]
    path.write_text("".join(f"{name}:{line}\n" for name in names), encoding="utf-8")
    return path


def start(
    fresh_broker: BrokerFactory, users: Path, folder: Path, options: str = "", *more: str
) -> BrokerProcess:
    """A broker as one has it who followed the README: vmq_passwd, and nothing else set."""
    config = folder / "vmq.toml"
    config.write_text(f'[plugins.vmq_passwd]\nfile = "{users}"\n{options}', encoding="utf-8")
    return fresh_broker(data_dir=folder / "data", args=("--config", str(config), *more))
