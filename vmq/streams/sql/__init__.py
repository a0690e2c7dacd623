"""SQL on streams, by DuckDB in a process of its own."""
