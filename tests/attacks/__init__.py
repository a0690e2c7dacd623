"""What bad clients, bad neighbours and bad luck did to brokers, each as a test.

Bounded: in the ordinary suite they run in small, `make attack` runs them in full (`tests.attacks.size`).
"""
