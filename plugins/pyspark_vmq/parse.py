"""From raw messages to typed columns: levels of the topic, and fields of a JSON payload."""

import re
from typing import TYPE_CHECKING

from pyspark_vmq.errors import VmqError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

LEVEL = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")


def parse(messages: "DataFrame", topic: str, schema: str = "", *, prefix: str = "") -> "DataFrame":
    """The messages of one kind of topic, with columns for what topic and payload say.

        parse(df, "plant/{site}/line/{line}/temp", "value double, unit string")

    keeps the messages whose topic has that form and adds the columns site, line, value and unit.
    Columns are added by Spark's own expressions: no Python runs for a row.

    Args:
        messages: has the columns `topic` and, with a schema, `payload`.
        topic: `{name}` makes a column of a level; `+` is any level, `#` at the end whatever follows.
        schema: the payload's JSON fields as Spark's DDL. A field that is missing, or a payload that
            is no such JSON, gives null.
        prefix: goes in front of the new columns' names, where they would clash with others.

    Raises:
        VmqError: a malformed topic, a new column of a name that there is already.
    """
    from pyspark.sql import functions as f
    from pyspark.sql.types import StructType

    levels = topic.split("/")
    parts = f.split(f.col("topic"), "/")
    form, named = _form(topic, levels, parts)
    columns = {prefix + name: parts.getItem(index) for name, index in named.items()}
    clashes = [name for name in columns if name in messages.columns]
    parsed_schema = StructType.fromDDL(schema) if schema else StructType()
    if not isinstance(parsed_schema, StructType):
        raise VmqError(f"vmq: parse: {schema!r} names no fields; expected e.g. 'value double'")
    fields = parsed_schema.fieldNames()
    clashes += [name for name in fields if prefix + name in {*messages.columns, *columns}]
    if clashes:
        raise VmqError(
            f"vmq: parse: the columns {', '.join(clashes)} are there already; give prefix='...'"
        )
    found = messages.where(form)
    if not schema:
        return found.withColumns(columns)
    # A name that no user takes: the struct is gone again in the next step.
    parsed = found.withColumn("__vmq_json", f.from_json(f.col("payload").cast("string"), schema))
    columns.update({prefix + name: f.col("__vmq_json").getField(name) for name in fields})
    return parsed.withColumns(columns).drop("__vmq_json")


def _form(topic: str, levels: list[str], parts: "Column") -> "tuple[Column, dict[str, int]]":
    """The condition that a topic has the given form, and where its named levels stand."""
    from pyspark.sql import functions as f

    open_end = levels[-1] == "#"
    if open_end:
        levels = levels[:-1]
    form = f.size(parts) >= len(levels) if open_end else f.size(parts) == len(levels)
    named: dict[str, int] = {}
    for index, level in enumerate(levels):
        name = LEVEL.fullmatch(level)
        if name:
            if name[1] in named:
                raise VmqError(f"vmq: parse: {{{name[1]}}} stands twice in {topic!r}")
            named[name[1]] = index
        elif any(sign in level for sign in "{}#") or ("+" in level and level != "+"):
            raise VmqError(
                f"vmq: parse: level {level!r} of {topic!r} is not accepted; a level is a word, "
                "{name}, '+', or '#' at the end"
            )
        elif level != "+":
            form = form & (parts.getItem(index) == level)
    return form, named
