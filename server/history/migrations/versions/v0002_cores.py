"""A column for the name of the core in the rows of fail-overs, because several cores may write one history in turn."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add the column. Existing rows get an empty name."""
    op.add_column("failovers", sa.Column("core", sa.Text(), nullable=False, server_default=""))
