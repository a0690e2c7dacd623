"""What several test folders share: a broker as a process, and a client that speaks raw bytes."""
