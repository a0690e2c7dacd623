"""Pipelines in SQL: a file of statements, with lines before each that say what becomes of it.

--@ option threshold 30
--@ messages raw plant/+/temp
--@ view temps
SELECT split(topic, '/')[1] AS site, CAST(CAST(payload AS STRING) AS DOUBLE) AS value, timestamp FROM raw;
--@ table averages
SELECT site, window(timestamp, '1 minute') AS w, avg(value) AS average
FROM temps WATERMARK timestamp DELAY OF INTERVAL 1 MINUTE GROUP BY site, w;
--@ publish alerts plant/alerts
SELECT concat(site, ' is hot') AS payload FROM temps WHERE value > :threshold
"""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from vmq_spark.errors import PipelineError
from vmq_spark.options import Option

if TYPE_CHECKING:
    from vmq_spark.flow import Flow

#: What each directive takes: names of its words; those in brackets may be missing.
DIRECTIVES: Final = {
    "option": "NAME DEFAULT",
    "messages": "VIEW FILTER",
    "view": "NAME",
    "table": "NAME",
    "publish": "NAME [TOPIC]",
}
_WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
#: Texts and comments, in which a semicolon ends nothing; and the semicolon.
_TOKEN: Final = re.compile(
    r"""'(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*" | `[^`]*` | --[^\n]* | /\*.*?\*/ | (?P<end>;)""",
    re.VERBOSE | re.DOTALL,
)


class Directive(Struct):
    """A line `--@ KIND WORDS`."""

    kind: str
    words: list[str]


class Statement(Struct):
    """A statement, and what its result becomes; None: it has none, as SET."""

    text: str
    output: Directive | None


class SqlPipeline(Struct):
    """A file of SQL."""

    description: str
    options: dict[str, Option]
    #: View -> topic filter.
    messages: dict[str, str]
    statements: list[Statement]

    @classmethod
    def parse(cls, text: str) -> "SqlPipeline":
        """Takes a file apart.

        Raises:
            PipelineError: a directive that is none, or a query without a place for its rows.
        """
        found = cls(_description(text), {}, {}, [])
        for part in split(text):
            output = None
            for directive in _directives(part):
                first, *rest = directive.words
                if directive.kind == "option":
                    found.options[first] = _option(first, " ".join(rest))
                elif directive.kind == "messages":
                    found.messages[first] = rest[0]
                elif output is not None:
                    raise PipelineError(f"two outputs for one statement: '{first}'")
                else:
                    output = directive
            if _bare(part):
                found.statements.append(Statement(part, output))
            elif output is not None:
                raise PipelineError(f"no statement follows '--@ {output.kind}'")
        outputs = [each.output.kind for each in found.statements if each.output is not None]
        if not {"table", "publish"} & set(outputs):
            raise PipelineError(
                "it writes nothing: '--@ table' or '--@ publish' goes before a SELECT"
            )
        return found

    def build(self, flow: "Flow", **options: Any) -> None:
        """Runs the statements, in their order."""
        for view, topic in self.messages.items():
            flow.messages(topic).createOrReplaceTempView(view)
        given = {name: each.default for name, each in self.options.items()} | options
        for statement in self.statements:
            rows = flow.spark.sql(statement.text, args=given)
            output = statement.output
            if output is None:
                continue
            name, *rest = output.words
            if output.kind == "view":
                rows.createOrReplaceTempView(name)
            elif output.kind == "table":
                flow.table(name, rows)
            else:
                flow.publish(name, rows, **({"topic": rest[0]} if rest else {}))


def split(text: str) -> Iterator[str]:
    """The statements of a file, with the comments before them."""
    start = 0
    for token in _TOKEN.finditer(text):
        if token["end"]:
            yield text[start : token.start()]
            start = token.end()
    yield text[start:]


def _bare(part: str) -> str:
    """A statement without its comments; empty if there is nothing else."""
    return _TOKEN.sub(
        lambda each: "" if each[0].startswith(("--", "/*")) else each[0], part
    ).strip()


def _comments(part: str) -> Iterator[str]:
    return (each[0] for each in _TOKEN.finditer(part) if each[0].startswith("--"))


def _description(text: str) -> str:
    """The comments that a file begins with."""
    lines = []
    for line in text.splitlines():
        if not line.startswith("--") or line.startswith("--@"):
            break
        lines.append(line.removeprefix("--").strip())
    return "\n".join(lines).strip()


def _directives(part: str) -> Iterator[Directive]:
    for line in _comments(part):
        if not line.startswith("--@"):
            continue
        kind, *words = line.removeprefix("--@").split() or [""]
        form = DIRECTIVES.get(kind)
        if form is None:
            raise PipelineError(f"{line!r} is unknown; there are: {', '.join(DIRECTIVES)}")
        wanted = form.split()
        least = sum(not each.startswith("[") for each in wanted)
        most = len(words) if kind == "option" else len(wanted)
        if not least <= len(words) <= most:
            raise PipelineError(f"{line!r} is not accepted; expected: --@ {kind} {form}")
        if kind not in {"table", "publish"} and not _WORD.match(words[0]):
            raise PipelineError(f"{line!r}: {words[0]!r} is no name in SQL")
        yield Directive(kind, words)


def _option(name: str, text: str) -> Option:
    """An option of the type that its default has: a number, true or false, or a text."""
    for kind in (int, float):
        try:
            return Option(name, int | float, kind(text), False, "", "a number")
        except ValueError:
            continue
    if text in {"true", "false"}:
        return Option(name, bool, text == "true", False, "", "true or false")
    return Option(name, str, text.strip("'"), False, "", "")
