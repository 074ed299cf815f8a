"""The name server: who serves which topic, told by brokers, asked by clients.

`routes.py` is the table and its rules, `mappings.py` its static topics, `kv.py` the small key-value store
beside it; `handlers.py` turns requests into operations on both; `server.py` adds the sockets and timers. Name
servers do not know each other: every broker registers with each of them, so each serves alone.
"""
