"""A commit that proves first that its transaction is still the claim's: a database may end one by itself."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, event
from sqlalchemy.exc import DBAPIError

from holdfast.errors import StoreRefused

_SAVEPOINT: Final = "holdfast_claim"
_FAILED: Final = 3  # libpq's PQTRANS_INERROR


def commit_with_claim_only(connection: Connection) -> None:
    """From here on, a commit of this connection's transaction first proves that it is still the claim's.

    The proof hangs on SQLAlchemy's own event, so that `connection.commit()` within the block is proven like its end.
    The listeners end with the connection, which SQLAlchemy uses for this one transaction.
    """
    if connection.dialect.name == "sqlite":
        _stop_where_sqlite_has_ended(connection)
    elif connection.dialect.name == "postgresql":
        event.listen(connection, "commit", _refuse_failed)
    else:
        # It ends with its transaction, and whatever began since has none of that name. Not a second look at the claim's
        # row, which is one statement less: it looks the same if another transaction of this holder claimed in between.
        connection.exec_driver_sql(f"SAVEPOINT {_SAVEPOINT}")
        event.listen(connection, "commit", lambda it: _prove(it, f"RELEASE SAVEPOINT {_SAVEPOINT}"))


def _stop_where_sqlite_has_ended(connection: Connection) -> None:
    """Asked before each statement, not only at the end: that may begin anew, or commit by itself. It costs no I/O."""
    driver = connection.connection.driver_connection

    def stop(*_: object) -> None:
        if driver is None or not driver.in_transaction:
            raise _claim_has_ended()

    event.listen(connection, "before_cursor_execute", stop)
    event.listen(connection, "commit", stop)


def _refuse_failed(connection: Connection) -> None:
    """PostgreSQL runs nothing in a failed transaction, but its drivers take the ROLLBACK that answers a COMMIT for one.

    psycopg knows the state without asking the server. Where the driver does not tell it, any statement does.
    """
    state = getattr(getattr(connection.connection.driver_connection, "info", None), "transaction_status", None)
    if state is None:
        _prove(connection, "SELECT 1")
    elif state == _FAILED:
        _leave_nothing_open(connection)
        raise _claim_has_ended()


def _prove(connection: Connection, statement: str) -> None:
    """`statement` works if and only if the claim stands."""
    try:
        connection.exec_driver_sql(statement)
    except DBAPIError as error:
        if error.connection_invalidated:
            raise
        _leave_nothing_open(connection)
        raise _claim_has_ended() from error


def _leave_nothing_open(connection: Connection) -> None:
    """Not every pool rolls back what is returned to it, and its next user would commit what this block wrote."""
    connection.connection.rollback()  # the driver's: SQLAlchemy takes this transaction for one that it is committing


def _claim_has_ended() -> StoreRefused:
    return StoreRefused(
        "the database has ended the claim's transaction within the block: it rolled back after an error that was "
        "caught, or committed for a statement such as CREATE TABLE (MariaDB, MySQL). What ran after that is not "
        "written, and neither is what ran before, unless such a statement committed it. Let each DBAPIError leave the "
        "block, and run the whole transaction again"
    )
