"""The jobs of a running broker, for the operator."""
