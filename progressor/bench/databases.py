"""Databases of the benchmarks: made fresh for each sample and dropped afterwards; facts of their server.

Rule: no server is measured whose commits are not durable, and no database is touched that this module did
not make.
"""

from __future__ import annotations

import os
import platform
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from progressor.bench.rows import Load, Run
from progressor.errors import InvalidRequest
from progressor.storage import migrations, with_database

_PREFIX = "progressor_bench_"
_DURABLE = ("fsync", "synchronous_commit", "full_page_writes")


def run_sql(dsn: str, statement: str, **params: Any) -> list[dict[str, Any]]:
    """Run one statement outside of a transaction, and return its rows."""
    with migrations.connect(dsn) as connection:
        autocommit = connection.execution_options(isolation_level="AUTOCOMMIT")
        result = autocommit.exec_driver_sql(statement, params or None)
        if not result.returns_rows:
            return []
        return [dict(row) for row in result.mappings()]


def runner(dsn: str) -> Run:
    """Return a function that runs statements on this database."""
    return lambda statement, **params: run_sql(dsn, statement, **params)


class Probe:
    """One statement that runs more than once, on a connection that is opened beforehand."""

    def __init__(self, dsn: str, statement: str) -> None:
        self._connection = migrations.connect(dsn).execution_options(isolation_level="AUTOCOMMIT")
        self._statement = statement

    def ask(self) -> dict[str, Any]:
        """Run the statement, and return its only row."""
        return dict(self._connection.exec_driver_sql(self._statement).mappings().one())

    def close(self) -> None:
        self._connection.close()


class Server:
    """A PostgreSQL server on which the user may create databases."""

    def __init__(self, dsn: str, loads: Mapping[str, Load]) -> None:
        self._dsn = dsn
        self._loads = loads
        self._kept: dict[str, str] = {}

    def facts(self) -> dict[str, Any]:
        """Return the facts of machine and server that explain the figures."""
        return {
            "cores": len(os.sched_getaffinity(0)),
            "machine": f"{platform.system()} {platform.release()} {platform.machine()}",
            "python": platform.python_version(),
            "load": round(os.getloadavg()[0], 1),
            **{
                name: run_sql(self._dsn, f"SHOW {name}")[0][name]
                for name in ("server_version", "shared_buffers", "max_wal_size", "wal_level", *_DURABLE)
            },
        }

    def require_durable(self) -> None:
        """Raise InvalidRequest for a server that answers before a commit is durable."""
        for name in _DURABLE:
            if run_sql(self._dsn, f"SHOW {name}")[0][name] != "on":
                raise InvalidRequest(
                    f"{name} is not on: this benchmark measures durable commits only", field=name
                )

    @contextmanager
    def database(self, kind: str) -> Iterator[str]:
        """Yield the DSN of a database for one sample: `empty`, `fresh` (migrated), or loaded.

        Loaded ones are big: they are loaded once, and kept until `close`.
        """
        if kind in self._loads:
            if kind not in self._kept:
                self._kept[kind] = self._loaded(kind)
            yield with_database(self._dsn, self._kept[kind])
            return
        name = self._create()
        try:
            dsn = with_database(self._dsn, name)
            if kind != "empty":
                migrations.upgrade(dsn)
            yield dsn
        finally:
            self._drop(name)

    def close(self) -> None:
        """Drop the databases that were kept."""
        while self._kept:
            _, name = self._kept.popitem()
            self._drop(name)

    def _create(self) -> str:
        name = _PREFIX + secrets.token_hex(6)
        run_sql(self._dsn, f"CREATE DATABASE {name}")
        return name

    def _loaded(self, kind: str) -> str:
        name = self._create()
        try:
            dsn = with_database(self._dsn, name)
            migrations.upgrade(dsn)
            self._loads[kind](runner(dsn))
        except BaseException:
            self._drop(name)
            raise
        return name

    def _drop(self, name: str) -> None:
        run_sql(self._dsn, f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
