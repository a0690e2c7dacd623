"""What a broker does once: checks before the start, and listening."""
