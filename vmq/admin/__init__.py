"""The operator's look into a running broker, and what may be changed in it: plain functions that give rows."""
