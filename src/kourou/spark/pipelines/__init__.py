"""Pipelines: the jobs that everybody who runs a queue ends up writing, as plain functions with typed results.

    archive.archive          topics into a lake of Parquet files, each message once
    restore.restore          and back, each in its queue and place
    redrive.redrive          dead letters to where they came from, none twice
    latency.latency          how long messages take
    lag_history.lag_history  how far groups are behind, over time
    audit.audit_lake         is everything there, once, in order? A lake against its brokers,
    audit.audit_sides        or what was sent against what was handled
    scan_store.scan_store    what is in the files of a stopped broker, and what is wrong with it
    stats.stats              volume, sizes, keys, tags, hot queues; stats.stream_stats as it happens

    from kourou.spark.pipelines.archive import archive

    done = archive(kourou.spark.session(), "localhost:9876", "lake", topics=["orders"])

The first parameter is a Spark session, the second a name server's address, or a `reach.Reach` where more is
to be said. Each result has a `report()`. `kourou pipeline` is these functions on the command line.
"""
