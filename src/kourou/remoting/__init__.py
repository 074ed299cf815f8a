"""The only owner of sockets: frames in, commands to a handler table, answers out; and the other side.

    server.py      what listens                client.py    asyncio connections, one per address
    connection.py  one connection, both ways   blocking.py  the same calls on plain sockets, no asyncio
    answer.py      how a request is answered   http.py      small pages over HTTP
    tick.py        one write per connection    tls.py, first_byte.py    TLS on the same port

Sockets come through `doors.network`, so that servers and asyncio clients also run on a simulated one.
"""
