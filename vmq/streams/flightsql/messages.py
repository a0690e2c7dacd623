"""The messages of Flight SQL, as protobuf has them: a table of fields instead of generated code."""

from typing import Any, Final

from google.protobuf import any_pb2, descriptor_pb2, descriptor_pool, message, message_factory

PACKAGE: Final = "arrow.flight.protocol.sql"
_MARK: Final = f"type.googleapis.com/{PACKAGE}.".encode()
#: Of a message: its fields in the order of their numbers; `?` marks those that may be absent, `*` those that repeat.
_FIELDS: Final = {
    "CommandGetCatalogs": "",
    "CommandGetCrossReference": (
        "string? pk_catalog, string? pk_db_schema, string pk_table, "
        "string? fk_catalog, string? fk_db_schema, string fk_table"
    ),
    "CommandGetDbSchemas": "string? catalog, string? db_schema_filter_pattern",
    "CommandGetExportedKeys": "string? catalog, string? db_schema, string table",
    "CommandGetImportedKeys": "string? catalog, string? db_schema, string table",
    "CommandGetPrimaryKeys": "string? catalog, string? db_schema, string table",
    "CommandGetSqlInfo": "uint32* info",
    "CommandGetTableTypes": "",
    "CommandGetTables": (
        "string? catalog, string? db_schema_filter_pattern, string? table_name_filter_pattern, "
        "string* table_types, bool include_schema"
    ),
    "CommandGetXdbcTypeInfo": "int32? data_type",
    "CommandPreparedStatementQuery": "bytes prepared_statement_handle",
    "CommandStatementQuery": "string query, bytes? transaction_id",
    "TicketStatementQuery": "bytes statement_handle",
    "ActionCreatePreparedStatementRequest": "string query, bytes? transaction_id",
    "ActionCreatePreparedStatementResult": (
        "bytes prepared_statement_handle, bytes dataset_schema, bytes parameter_schema"
    ),
    "ActionClosePreparedStatementRequest": "bytes prepared_statement_handle",
}


class BadMessageError(ValueError):
    """Bytes that are no message of Flight SQL, or one that has no meaning here."""


def _declared() -> dict[str, type[message.Message]]:
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="vmq/flight_sql.proto", package=PACKAGE, syntax="proto3"
    )
    for name, fields in _FIELDS.items():
        made = file.message_type.add(name=name)
        for number, each in enumerate(filter(None, fields.split(", ")), 1):
            kind, _, label = each.partition(" ")
            one = made.field.add(
                name=label,
                number=number,
                type=getattr(field, f"TYPE_{kind.strip('?*').upper()}"),
                label=field.LABEL_REPEATED if kind.endswith("*") else field.LABEL_OPTIONAL,
            )
            if kind.endswith("?"):  # how protobuf tells an empty text from none
                one.proto3_optional = True
                one.oneof_index = len(made.oneof_decl)
                made.oneof_decl.add(name=f"_{label}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}"))
        for name in _FIELDS
    }


_KINDS: Final = _declared()


def make(kind: str, **fields: Any) -> bytes:
    """A message as it travels."""
    packed = any_pb2.Any()
    packed.Pack(_KINDS[kind](**fields))
    return packed.SerializeToString()


def parse(data: bytes) -> tuple[str, Any]:
    """The name of a message, and the message with its fields as attributes.

    Raises:
        BadMessageError: it is none, or one that is not for us.
    """
    packed = any_pb2.Any()
    try:
        packed.ParseFromString(data)
        name = packed.type_url.rpartition(".")[2]
        kind = _KINDS.get(name)
        if kind is None or not packed.type_url.encode().startswith(_MARK):
            raise BadMessageError(
                f"there is no {packed.type_url.rpartition('/')[2]!r:.100} here: streams are read by statements"
                " and prepared statements, and written by MQTT or Flight"
            )
        found = kind()
        found.ParseFromString(packed.value)
    except message.DecodeError as error:
        raise BadMessageError(f"this is no message of Flight SQL: {error}") from None
    return name, found
