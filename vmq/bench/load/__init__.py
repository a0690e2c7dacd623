"""The clients that make the load, and what they measure."""
