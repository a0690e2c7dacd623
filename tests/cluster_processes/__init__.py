"""Clusters of real processes: brokers that are killed, stopped, cut off, wiped and restarted while clients use them.

`cluster` starts and ends the brokers, `links` is the network between them and `namespaces` one of the kernel's;
`devices` are clients (paho) that publish and subscribe throughout, and write down what they were promised and got.
"""
