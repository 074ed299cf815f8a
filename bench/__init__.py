"""How fast it is: one command (`make bench`), one table, a recorded baseline.

    load.c          the load generator, compiled on first use
    generator.py    compiles and runs it
    servers.py      our parts and Apache's, side by side
    messages.py     send and pull: rates, latencies, CPU per message
    lookups.py      the name server: route lookups, a large registration, memory, start
    codec.py        what one request costs without any socket, and what `import kourou` costs
    report.py       the table, the goals, the JSON

Figures of two systems are taken in alternating rounds of one run and compared as ratios, because machines
differ, and a shared one differs from minute to minute. A ratio is the median over the rounds of ours to
theirs in the same round. The command fails when a goal is missed, but not with `--quick`, whose rounds are
too short to judge anything by.
"""
