"""What is looked at every few seconds: memory, connections, tables, backlog, latencies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import psycopg

Sample = dict[str, float]

TABLES = ("processes", "tasks", "schedule", "running", "events", "workers")
_TABLES = """
SELECT
    c.relname, pg_table_size(c.oid), pg_indexes_size(c.oid),
    coalesce(s.n_dead_tup, 0), coalesce(s.n_live_tup, 0)
FROM pg_class AS c LEFT JOIN pg_stat_user_tables AS s ON s.relid = c.oid
WHERE c.relname = ANY (%s) AND c.relkind = 'r' AND c.relnamespace = 'progressor'::regnamespace
"""
_BACKLOG = """
SELECT count(*), coalesce(extract(epoch FROM max(now() - scheduled_time)), 0)::float8
FROM progressor.schedule WHERE claimable AND scheduled_time <= now()
"""
_CONNECTIONS = """
SELECT count(*) FILTER (WHERE application_name LIKE 'progressor%%'), count(*) FROM pg_stat_activity
WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()
"""
_MIB = 1 << 20


def memory_mib(pid: int | str) -> float:
    """The resident memory of a process, in MiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


def percentile(values: Sequence[float], share: float) -> float:
    """The value that `share` of the values do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def of_database(connection: psycopg.Connection) -> Sample:
    """Connections, sizes in MiB, dead and live rows, backlog."""
    sample: Sample = {}
    for table, size, indexes, dead, live in connection.execute(_TABLES, [list(TABLES)]):
        sample[f"{table} table, MiB"] = size / _MIB
        sample[f"{table} indexes, MiB"] = indexes / _MIB
        sample[f"{table} dead rows"] = dead
        sample[f"{table} live rows"] = live
    backlog = connection.execute(_BACKLOG).fetchone()
    connections = connection.execute(_CONNECTIONS).fetchone()
    if backlog is not None and connections is not None:
        sample["backlog"], sample["backlog oldest, s"] = backlog
        sample["connections"], sample["all connections"] = connections
    return sample


def of_latencies(taken: Mapping[str, Sequence[float]]) -> Sample:
    """Percentiles in milliseconds, by operation."""
    sample: Sample = {}
    for verb, values in taken.items():
        for name, share in (("p50", 0.5), ("p99", 0.99)):
            sample[f"{verb} {name}, ms"] = percentile(values, share)
    return sample
