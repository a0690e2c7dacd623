"""What programs ask about a database: catalogs, schemas, tables, types, abilities. Source: FlightSql.proto."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
import re2

from vmq import version

CATALOG: Final = "vmq"
DB_SCHEMA: Final = "main"
TABLE: Final = "TABLE"


class StreamTableInfo(NamedTuple):
    """A stream as a table: its name and its columns."""

    name: str
    columns: pa.Schema


def _schema(text: str) -> pa.Schema:
    """Fields as `name type`, with a question mark where there may be no value."""
    kinds = {
        "utf8": pa.utf8(),
        "int32": pa.int32(),
        "uint8": pa.uint8(),
        "uint32": pa.uint32(),
        "bool": pa.bool_(),
        "binary": pa.binary(),
        "texts": pa.list_(pa.utf8()),
    }
    fields = []
    for each in text.split(", "):
        name, kind = each.split(" ")
        fields.append(pa.field(name, kinds[kind.rstrip("?")], nullable=kind.endswith("?")))
    return pa.schema(fields)


_KEYS: Final = _schema(
    "pk_catalog_name utf8?, pk_db_schema_name utf8?, pk_table_name utf8, pk_column_name utf8, "
    "fk_catalog_name utf8?, fk_db_schema_name utf8?, fk_table_name utf8, fk_column_name utf8, "
    "key_sequence int32, fk_key_name utf8?, pk_key_name utf8?, update_rule uint8, delete_rule uint8"
)
_INFO: Final = pa.dense_union(
    [
        pa.field("string_value", pa.utf8()),
        pa.field("bool_value", pa.bool_()),
        pa.field("bigint_value", pa.int64()),
        pa.field("int32_bitmask", pa.int32()),
        pa.field("string_list", pa.list_(pa.utf8())),
        pa.field("int32_to_int32_list_map", pa.map_(pa.int32(), pa.list_(pa.int32()))),
    ]
)
#: Of each kind of question the columns of its answer.
COLUMNS: Final = {
    "CommandGetCatalogs": _schema("catalog_name utf8"),
    "CommandGetDbSchemas": _schema("catalog_name utf8?, db_schema_name utf8"),
    "CommandGetTables": _schema(
        "catalog_name utf8?, db_schema_name utf8?, table_name utf8, table_type utf8"
    ),
    "CommandGetTableTypes": _schema("table_type utf8"),
    "CommandGetPrimaryKeys": _schema(
        "catalog_name utf8?, db_schema_name utf8?, table_name utf8, column_name utf8, "
        "key_sequence int32, key_name utf8?"
    ),
    "CommandGetExportedKeys": _KEYS,
    "CommandGetImportedKeys": _KEYS,
    "CommandGetCrossReference": _KEYS,
    "CommandGetSqlInfo": pa.schema(
        [
            pa.field("info_name", pa.uint32(), nullable=False),
            pa.field("value", _INFO, nullable=False),
        ]
    ),
    "CommandGetXdbcTypeInfo": _schema(
        "type_name utf8, data_type int32, column_size int32?, literal_prefix utf8?, literal_suffix utf8?, "
        "create_params texts?, nullable int32, case_sensitive bool, searchable int32, unsigned_attribute bool?, "
        "fixed_prec_scale bool, auto_increment bool?, local_type_name utf8?, minimum_scale int32?, "
        "maximum_scale int32?, sql_data_type int32, datetime_subcode int32?, num_prec_radix int32?, "
        "interval_precision int32?"
    ),
}
#: SqlInfo: what the server is and can. 500 to 502: statements that define; 503, 505: how names are compared (1: in
#: any case); 504: what quotes them; 8: transactions (0: none).
_ABILITIES: Final[dict[int, str | bool | int]] = {
    0: "vmq",
    1: version.__version__,
    2: pa.__version__,
    3: True,  # read only
    4: True,  # SQL
    5: False,  # Substrait
    8: 0,
    9: False,  # cancelling
    100: False,  # bulk ingestion
    500: False,
    501: False,
    502: False,
    503: 1,
    504: '"',
    505: 1,
}
#: XDBC's numbers: a type of DuckDB, its code, digits or bytes, what quotes a literal.
_TYPES: Final = (
    ("BOOLEAN", -7, 1, ""),
    ("TINYINT", -6, 3, ""),
    ("SMALLINT", 5, 5, ""),
    ("INTEGER", 4, 10, ""),
    ("BIGINT", -5, 19, ""),
    ("FLOAT", 6, 7, ""),
    ("DOUBLE", 8, 15, ""),
    ("VARCHAR", 12, 0x7FFFFFFF, "'"),
    ("BLOB", -3, 0x7FFFFFFF, "'"),
    ("DATE", 91, 10, "'"),
    ("TIMESTAMP", 93, 26, "'"),
)
#: XDBC: a value may be null; it can be compared by every operator.
_NULLABLE: Final = 1
_SEARCHABLE: Final = 3


#: A name is not longer, so that a longer pattern finds nothing but by what it leaves open.
LONGEST_PATTERN: Final = 1024


def fits(name: str, question: Any, field: str) -> bool:
    """Whether a name fits a pattern of SQL's LIKE in a question; one that is absent fits all."""
    if not question.HasField(field):
        return True
    pattern: str = getattr(question, field)
    return len(pattern) <= LONGEST_PATTERN and bool(_like(pattern, name))


def _like(pattern: str, name: str) -> Any:
    parts = {"%": ".*", "_": "."}
    text = "".join(parts.get(each) or re2.escape(each) for each in pattern)
    return re2.fullmatch(f"(?s){text}", name)


def columns_of(kind: str, question: Any) -> pa.Schema:
    """The columns of an answer."""
    schema = COLUMNS[kind]
    if kind == "CommandGetTables" and question.include_schema:
        schema = schema.append(pa.field("table_schema", pa.binary(), nullable=False))
    return schema


def answer(kind: str, question: Any, tables: Sequence[StreamTableInfo]) -> pa.Table:
    """The rows of an answer. `tables`: what the caller may read."""
    rows: Sequence[tuple[object, ...]] = ()
    if kind == "CommandGetSqlInfo":
        return _abilities(set(question.info) or set(_ABILITIES))
    if kind == "CommandGetCatalogs":
        rows = [(CATALOG,)]
    elif kind == "CommandGetTableTypes":
        rows = [(TABLE,)]
    elif kind == "CommandGetXdbcTypeInfo":
        rows = [
            _type(*each)
            for each in _TYPES
            if not question.HasField("data_type") or question.data_type == each[1]
        ]
    elif kind == "CommandGetDbSchemas":
        if _is_here(question) and fits(DB_SCHEMA, question, "db_schema_filter_pattern"):
            rows = [(CATALOG, DB_SCHEMA)]
    elif kind == "CommandGetTables":
        rows = _tables(question, tables)
    schema = columns_of(kind, question)
    columns = zip(*rows, strict=True) if rows else [()] * len(schema)
    arrays = [
        pa.array(list(values), field.type) for values, field in zip(columns, schema, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def _is_here(question: Any) -> bool:
    return not question.HasField("catalog") or question.catalog == CATALOG


def _tables(question: Any, tables: Sequence[StreamTableInfo]) -> list[tuple[object, ...]]:
    wanted = not question.table_types or TABLE in question.table_types
    if not (wanted and _is_here(question)):
        return []
    if not fits(DB_SCHEMA, question, "db_schema_filter_pattern"):
        return []
    return [
        (CATALOG, DB_SCHEMA, each.name, TABLE)
        + ((each.columns.serialize().to_pybytes(),) if question.include_schema else ())
        for each in tables
        if fits(each.name, question, "table_name_filter_pattern")
    ]


def _type(name: str, code: int, size: int, quote: str) -> tuple[object, ...]:
    quoted = quote or None
    is_number = not quote and name != "BOOLEAN"
    return (
        *(name, code, size, quoted, quoted, None, _NULLABLE, name == "VARCHAR", _SEARCHABLE),
        *(False if is_number else None, False, False, name, None, None, code, None),
        *(10 if is_number else None, None),
    )


def _abilities(wanted: set[int]) -> pa.Table:
    """SqlInfo: values of several types in one column."""
    kept = {number: value for number, value in _ABILITIES.items() if number in wanted}
    children: list[list[object]] = [[] for _ in range(_INFO.num_fields)]
    types, offsets = [], []
    for value in kept.values():
        kind = 0 if isinstance(value, str) else 1 if isinstance(value, bool) else 2
        types.append(kind)
        offsets.append(len(children[kind]))
        children[kind].append(value)
    arrays = [pa.array(values, _INFO.field(number).type) for number, values in enumerate(children)]
    union = pa.UnionArray.from_dense(
        pa.array(types, pa.int8()),
        pa.array(offsets, pa.int32()),
        arrays,
        [_INFO.field(number).name for number in range(_INFO.num_fields)],
    )
    names = pa.array(list(kept), pa.uint32())
    return pa.Table.from_arrays([names, union], schema=COLUMNS["CommandGetSqlInfo"])
