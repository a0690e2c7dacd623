"""Jobs over several nodes."""
