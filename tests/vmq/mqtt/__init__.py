"""Tests of the sans-I/O protocol."""
