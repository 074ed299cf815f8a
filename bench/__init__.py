"""How fast it is: one command (`make bench`), one table, a recorded baseline.

    load.c          the load generator, compiled on first use
    generator.py    compiles and runs it
    servers.py      our parts and Apache's, side by side
    messages.py     send, pull, deliver: rates, latencies, CPU per message
    flatness.py     what a message costs with much of everything: stored, topics, connections, timers
    footprint.py    memory at rest, a start, a restart after a kill, beside Apache's
    java_clients.py Apache's own benchmark programmes as the client
    lookups.py      the name server: route lookups, a large registration, memory, start
    startup.py      the broker: start to first acknowledged send, memory, with 10,000 topics
    restart.py      the broker: the same after `kill -9`, with 10 M messages stored
    folders.py      makes the folders for these
    codec.py        what one request costs without any socket, and what `import kourou` costs
    spark.py        topics into Spark: rates beside a source in memory, micro-batches beside the engine's own
    report.py       the table, the goals, the JSON
    aims.py         what is aimed for
    page.py         the figures and the picture of docs/benchmarks.md

Figures of two systems are taken in alternating rounds of one run and compared as ratios, because machines
differ, and a shared one differs from minute to minute. A ratio is the median over the rounds of ours to
theirs in the same round. The command fails when a goal is missed, but not with `--quick`, whose rounds are
too short to judge anything by.
"""
