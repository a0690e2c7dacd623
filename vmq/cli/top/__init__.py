"""`vmq top`: a running broker in the terminal, live."""
