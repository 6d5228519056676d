"""`python -m benchmarks.beside_dbos`: play the scenario on a database of its own, in the peers' Python."""

from __future__ import annotations

import os
import subprocess
import sys

from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import URL

from benchmarks import environment
from progressor import development_database


def url_of(dsn: str) -> str:
    """Return a DSN as SQLAlchemy and DBOS take it."""
    parts = conninfo_to_dict(dsn)
    port = {"port": str(parts["port"])} if "port" in parts else {}
    return URL.create(
        "postgresql+psycopg",
        username=parts.get("user"),
        password=parts.get("password"),
        database=parts.get("dbname"),
        query={"host": str(parts["host"]), **port},
    ).render_as_string(hide_password=False)


def main() -> int:
    with development_database() as dsn:
        command = [environment.python(), "-m", "benchmarks.beside_dbos.scenario"]
        env = {**os.environ, "BILLING_DATABASE_URL": url_of(dsn), "BILLING_RETRY_SECONDS": "0.1"}
        return subprocess.run(command, env=env, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
