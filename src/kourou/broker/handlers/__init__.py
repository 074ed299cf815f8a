"""What a broker answers, one file a family of requests.

A handler is called with the request and the way to answer it. It never waits: it answers now, or hands
`answer` to what it waits for.
"""
