"""The columns of a stream as Spark sees them, and the projection that a user's schema asks for.

The Arrow types must be exactly the ones that Spark derives from the DDL: it accepts no large,
unsigned, dictionary-encoded or zoneless variant, and checks the first batch only.
"""

from typing import TYPE_CHECKING, Final

from pyspark_vmq.errors import OptionError

if TYPE_CHECKING:
    import pyarrow as pa
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


#: The types that the typed columns of a stream may have.
TYPED: Final = ("string", "boolean", "int", "bigint", "double", "timestamp")

#: What a typed column may be read as, beside its own type: no value of it changes.
WIDER: Final = {"int": ("bigint", "double")}

#: The columns that are fetched: one that every stream has with whether it may be null, a typed one with its type.
Columns = dict[str, bool | str]


def columns_of(schema: "pa.Schema") -> dict[str, str]:
    """The typed columns of a stream, with Spark's types, by the schema of its flight."""
    import pyarrow as pa

    kinds = {
        pa.string(): "string",
        pa.bool_(): "boolean",
        pa.int32(): "int",
        pa.int64(): "bigint",
        pa.float64(): "double",
        pa.timestamp("us", tz="UTC"): "timestamp",
    }
    return {each.name: kinds[each.type] for each in schema if each.name not in COLUMNS}


def projection(schema: "StructType") -> Columns:
    """The columns to fetch for a schema that the user gave with `.schema(...)`, in its order.

    Those that not every stream has are typed columns (`[streams.NAME.schema]`); the broker knows them.

    Raises:
        OptionError: a column that no stream has, or every stream has with another type.
    """
    columns: Columns = {}
    for field in schema.fields:
        name, kind = field.name, COLUMNS.get(field.name)
        given = field.dataType.simpleString()
        if name in columns:
            raise OptionError("schema", f"column '{name}' is named twice")
        if kind is not None:
            if given != kind:
                raise OptionError("schema", f"column '{name}' is {kind}, not {given}")
            columns[name] = field.nullable
        elif given in TYPED:
            if not field.nullable:
                raise OptionError("schema", f"column '{name}' may be null, as every typed column")
            columns[name] = given
        else:
            raise OptionError(
                "schema",
                f"there is no column '{name}' of type {given}; there are: {', '.join(COLUMNS)}, and the typed "
                f"columns of the stream, each {', '.join(TYPED)}",
            )
    return columns


def check_typed(stream: str, there: "pa.Schema", columns: Columns) -> None:
    """Looks whether a stream has the typed columns that are to be fetched.

    Arrow would make other types of them, if it can of the values of a batch: an error would come with the first for
    which it cannot.

    Raises:
        OptionError: it has no such column, or has it with another type.
    """
    typed = columns_of(there)
    for name, given in columns.items():
        if not isinstance(given, str):
            continue
        kind = typed.get(name)
        if kind is None:
            known = ", ".join(there.names)
            raise OptionError(
                "schema", f"there is no column '{name}'; accepted: {known} (stream '{stream}')"
            )
        if given not in {kind, *WIDER.get(kind, ())}:
            raise OptionError(
                "schema", f"column '{name}' of stream '{stream}' is {kind}, not {given}"
            )
