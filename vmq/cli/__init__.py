"""The command line: one module a command, each of which imports what it needs only when it runs."""
