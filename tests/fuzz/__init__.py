"""Fuzzing: bytes that nobody would think of.

Two fuzzers. `session` mutates bytes towards new code paths, in one process without sockets (atheris);
`sockets` maltreats a live broker over TCP and WebSocket. The suite runs a bounded, seeded part of
both and replays the corpus on the core as it is built; `make fuzz` runs them for as long as you like.
"""
