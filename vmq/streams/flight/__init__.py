"""Streams over Arrow Flight: gets, puts, tickets and access."""
