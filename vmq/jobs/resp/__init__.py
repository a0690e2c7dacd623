"""RESP, the protocol of Redis clients: bytes to commands, and what each command does to the jobs."""
