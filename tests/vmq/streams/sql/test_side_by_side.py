"""Scans of one query run side by side: each has its own answers of the broker, and so its own rows."""

import os
import random
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import msgspec
import pytest

from tests.vmq.streams.flight_support import Running
from tests.vmq.streams.support import options
from vmq.streams.log.errors import StreamError
from vmq.streams.sql.engine import AskingBroker
from vmq.streams.sql.running import SqlRunner, sources_of
from vmq.streams.sql.talk import ASK_FORM, DATA, FAIL, HEAD, LOCATED, SqlAsk

ASKING = 8
QUESTIONS = 100


def test_each_question_has_its_answer() -> None:
    """Whoever asks meanwhile, and though something else is said."""
    heard: list[bytes] = []
    questions, to_broker = os.pipe()
    from_broker, answers = os.pipe()

    def serve() -> None:
        with os.fdopen(questions, "rb") as source, os.fdopen(answers, "wb", buffering=0) as sink:
            while head := source.read(HEAD.size):
                kind, length = HEAD.unpack(head)
                data = source.read(length)
                if kind == DATA:
                    heard.append(data)
                    continue
                asked = ASK_FORM.decode(data)
                data = data if asked.offset % 3 else b"not %d" % asked.offset
                # In two parts, so that others may come in between.
                sink.write(HEAD.pack(LOCATED if asked.offset % 3 else FAIL, len(data)))
                sink.write(data)

    server = threading.Thread(target=serve)
    server.start()
    with os.fdopen(from_broker, "rb") as source, os.fdopen(to_broker, "wb") as sink:
        broker = AskingBroker(source, sink)

        def ask(number: int) -> None:
            for offset in range(QUESTIONS):
                asked = SqlAsk(number, number, offset)
                if offset % 3:
                    assert broker.ask(asked) == (LOCATED, msgspec.json.encode(asked))
                else:
                    with pytest.raises(StreamError, match=rf"\Anot {offset}\Z"):
                        broker.ask(asked)
                broker.say(DATA, b"%d" % number)

        with ThreadPoolExecutor(ASKING) as pool:
            for each in [pool.submit(ask, number) for number in range(ASKING)]:
                each.result()
    server.join()
    assert Counter(heard) == {b"%d" % number: QUESTIONS for number in range(ASKING)}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Two streams of many small segments, and rows that tell where they belong."""
    folder = tmp_path_factory.mktemp("sql") / "streams"
    chance = random.Random(7)
    found = Running(
        folder,
        one=options(filters=["one/#"], partitions=8, key="topic", segment_bytes=65_536),
        two=options(filters=["two/#"], partitions=4, key="topic", segment_bytes=65_536),
    )
    for number in range(120):
        for name, topics in (("one", 40), ("two", 15)):
            payloads = [
                b"%s-%d-%d-" % (name.encode(), number, each)
                + chance.randbytes(chance.choice((20, 900)))
                for each in range(chance.randrange(1, 40))
            ]
            found.append(f"{name}/{chance.randrange(topics)}", *payloads)
    yield found
    found.close()


def counted(running: Running, name: str) -> int:
    """By what the partitions say: no message is twice, or missing."""
    return sum(each.end - each.earliest for each in running.catalog.streams[name].partitions)


def test_scans_of_one_query_do_not_mix(running: Running) -> None:
    """Scalar queries, self joins and unions, of one stream and of two: each as by itself."""
    one, two = counted(running, "one"), counted(running, "two")
    scans = [
        ("select count(*) from one", one),
        ("select count(distinct payload) from one", one),
        ("select count(*) from two", two),
        ("select count(distinct payload) from two", two),
        ('select count(distinct (partition, "offset")) from one', one),
        ("select count(*) from one where payload[1:4] = 'one-'::blob", one),
        ("select count(*) from (select payload from one union select payload from two)", one + two),
        ('select count(*) from one a join one b using (partition, "offset", payload)', one),
        ('select count(*) from two a join two b using (partition, "offset", payload)', two),
    ]
    chance = random.Random(11)
    with closing(SqlRunner()) as runner:
        for _ in range(2):
            chance.shuffle(scans)
            columns = ", ".join(f"({text}) as n{at}" for at, (text, _) in enumerate(scans))
            found = runner.run(f"select {columns}", sources_of(running.catalog, lambda _: True))
            assert found.to_pylist() == [{f"n{at}": count for at, (_, count) in enumerate(scans)}]


def test_scans_that_end_early_hold_nobody_up(running: Running) -> None:
    """What the others need comes, whatever became of the questions of those that have enough."""
    query = (
        "select (select count(*) from (select payload from one limit 3)) as few,"
        " (select count(distinct payload) from one) as every,"
        " (select payload is null from two limit 1) as first,"
        " (select count(*) from (from two limit 40)) as some"
    )
    with closing(SqlRunner()) as runner:
        sources = sources_of(running.catalog, lambda _: True)
        for _ in range(2):
            assert runner.run(query, sources).to_pylist() == [
                {"few": 3, "every": counted(running, "one"), "first": False, "some": 40}
            ]
