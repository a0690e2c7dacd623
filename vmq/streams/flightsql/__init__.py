"""Flight SQL: statements over the Flight listener, for ADBC and whoever else speaks it.

    messages     the protocol's messages, in protobuf        metadata    catalogs, tables, types, as tables
    statements   what a server answers to them

A statement runs as `vmq sql` does (`vmq.streams.sql`): in a process of its own that can read the streams which the
caller may subscribe to, and nothing else. Its handle is the statement itself, so that a server keeps nothing between
two calls, and nobody can take another's: it is judged, and run, when its rows are fetched.

Source: Arrow's FlightSql.proto.
"""
