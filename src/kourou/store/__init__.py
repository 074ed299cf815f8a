"""One broker's data on disk, in the format of Apache RocketMQ 4.9 and 5.x. Knows no network.

`store.py` is the door to it: append, read, look up.
"""
