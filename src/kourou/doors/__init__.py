"""The only ways to time, disk, sockets and chance.

Everything above takes these four as arguments and never calls `time`, `open`, `socket` or `random` itself,
so that crash, power-cut and simulation tests can put their own behind the same code.
"""
