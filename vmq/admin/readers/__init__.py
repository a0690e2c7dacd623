"""Readers of streams, for the operator."""
