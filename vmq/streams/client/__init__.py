"""The side of programs: members of consumer groups, over Arrow Flight. Knows nothing of the broker's modules."""
