"""Who may read some topics of a stream reads these in Spark, and no others. Without a JVM."""

from pathlib import Path

import pytest
from pyspark_vmq.errors import OptionError, ServerError
from pyspark_vmq.options import source_options
from pyspark_vmq.source import Reader

from tests.plugins.pyspark_vmq.test_recreated import COLUMNS, Query
from tests.vmq.streams.flight.test_access import Rules
from tests.vmq.streams.flight_support import FACES, Running, serving
from tests.vmq.streams.support import options


@pytest.mark.parametrize("face", FACES)
def test_a_right_to_the_topic_is_enough(face: str, tmp_path: Path) -> None:
    running = Running(tmp_path, mixed=options(filters=["a/#", "b/#"]))
    running.append("a/x", b"1")
    running.append("b/x", b"2")
    with serving(face, running, access=Rules()) as server:
        user = {"username": "bob", "password": "other"}
        url = f"grpc://127.0.0.1:{server.port}"
        # The stream is found, too, and known by its id; a time leads to offsets.
        query = Query(url, **user, stream="", topic="b/+")
        assert query.run() == [b"2"]
        assert query.checkpoint is not None
        assert query.checkpoint["ids"].keys() == {"mixed"}
        given = {"server": url, **user, "stream": "mixed"}
        reader = Reader(
            source_options({**given, "topic": "b/x", "startingTimestamp": "0"}, "batch"), COLUMNS
        )
        (task,) = reader.partitions()
        assert [each for rows in reader.read(task) for each in rows.column(0).to_pylist()] == [b"2"]
        with pytest.raises(ServerError, match="may not read"):
            Reader(source_options({**given, "topic": "a/x"}, "batch"), COLUMNS).partitions()
        with pytest.raises(OptionError, match="no stream"):
            Query(url, **user, stream="", topic="a/x").run()
    running.close()
