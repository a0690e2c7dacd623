"""The columns of a stream as Spark sees them, and the projection that a user's schema asks for.

The Arrow types must be exactly the ones that Spark derives from the DDL: it accepts no large,
unsigned, dictionary-encoded or zoneless variant, and checks the first batch only.
"""

from typing import TYPE_CHECKING, Final

from pyspark_vmq.errors import OptionError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

#: Column -> Spark's DDL type.
COLUMNS: Final[dict[str, str]] = {
    "topic": "string",
    "payload": "binary",
    "qos": "int",
    "retain": "boolean",
    "timestamp": "timestamp",
    "client_id": "string",
    "key": "binary",
    "headers": "array<struct<key:string,value:string>>",
    "stream": "string",
    "partition": "int",
    "offset": "bigint",
}

#: Nothing but headers is ever missing. Saying so spares Spark a look at each value.
DDL: Final = ", ".join(
    f"{name} {kind}" + (" NOT NULL" if name != "headers" else "") for name, kind in COLUMNS.items()
)


def projection(schema: "StructType") -> dict[str, bool]:
    """The columns to fetch for a schema that the user gave with `.schema(...)`, in its order.

    Each comes with whether it may be null in that schema.

    Raises:
        OptionError: a column that streams do not have, or have with another type.
    """
    columns: dict[str, bool] = {}
    for field in schema.fields:
        kind = COLUMNS.get(field.name)
        if kind is None:
            raise OptionError(
                "schema", f"there is no column '{field.name}'; there are: {', '.join(COLUMNS)}"
            )
        given = field.dataType.simpleString()
        if given != kind:
            raise OptionError("schema", f"column '{field.name}' is {kind}, not {given}")
        if field.name in columns:
            raise OptionError("schema", f"column '{field.name}' is named twice")
        columns[field.name] = field.nullable
    return columns
