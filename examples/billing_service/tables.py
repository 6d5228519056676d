"""The service's own tables, in the database of its processes."""

import sqlalchemy as sa

metadata = sa.MetaData(schema="billing")

invoices = sa.Table(
    "invoices",
    metadata,
    sa.Column("number", sa.BigInteger, sa.Identity(), primary_key=True),
    sa.Column("subscription", sa.Text, nullable=False, index=True),
    sa.Column("charge", sa.Text, nullable=False, unique=True),
    sa.Column("issued_on", sa.Date, nullable=False),
    sa.Column("amount", sa.Integer, nullable=False),  # in cents
    sa.Column("refunded", sa.Integer, nullable=False, server_default="0"),
    sa.CheckConstraint("0 <= refunded AND refunded <= amount", name="refunded"),
)


def create(dsn: str) -> None:
    """Create the tables that do not exist; a real service has migrations of its own."""
    engine = sa.create_engine(sa.make_url(dsn).set(drivername="postgresql+psycopg"))
    with engine.begin() as connection:
        connection.execute(sa.schema.CreateSchema("billing", if_not_exists=True))
        metadata.create_all(connection)
    engine.dispose()
