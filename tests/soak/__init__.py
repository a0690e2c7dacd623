"""The soak: rounds of everything that clients do, after each of which the broker is as it was before.

The suite plays some; `make soak` plays them for as long as you like.
"""
