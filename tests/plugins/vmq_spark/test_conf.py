"""What a pipeline's session is made with."""

from pathlib import Path
from typing import Any

import pytest
from vmq_spark.conf import conf_of
from vmq_spark.settings import Settings, local_path

MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
FLAGS = "spark.driver.extraJavaOptions"


def settings(**given: Any) -> Settings:
    of_it: dict[str, Any] = {
        "name": "p",
        "source": "p.py",
        "connection": {},
        "master": "local[*,4]",
        "folder": "/data/p",
        "checkpoint": "/data/p/checkpoints",
        "output": "/data/p/tables",
        "trigger": "5 seconds",
    }
    return Settings(**of_it | given)


def test_the_users_settings_win() -> None:
    found = conf_of(settings(conf={MANAGER: "mine", "spark.driver.memory": "4g"}))
    assert (found[MANAGER], found["spark.driver.memory"]) == ("mine", "4g")
    assert found["spark.ui.enabled"] == "false"


@pytest.mark.parametrize(
    ("given", "is_set"),
    [
        ({}, {MANAGER, FLAGS}),
        ({"checkpoint": "s3a://bucket/p"}, {FLAGS}),
        ({"master": "spark://host:7077"}, {MANAGER}),
        ({"master": "yarn", "checkpoint": "hdfs://host/p"}, set()),
    ],
)
def test_what_suits_one_machine_is_set_on_one(given: dict[str, str], is_set: set[str]) -> None:
    assert {MANAGER, FLAGS} & conf_of(settings(**given)).keys() == is_set


def test_places_on_this_machine() -> None:
    assert local_path("/a/b") == Path("/a/b")
    assert local_path("file:///a/b") == Path("/a/b")
    assert local_path("a") == Path.cwd() / "a"
    assert local_path("s3a://a/b") is None
    assert local_path("hdfs://h:1/b") is None
