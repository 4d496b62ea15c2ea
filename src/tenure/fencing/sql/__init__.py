"""The guard for what lies in a database: PostgreSQL, MariaDB, MySQL, SQLite, through SQLAlchemy 2.

    guard = SQLGuard()                                   # one small table, one row for each resource
    guard.create(engine)                                 # or put guard.ddl("postgresql") into a migration

    with guard.transaction(engine, hold, resource="ledger") as connection:
        balance = connection.scalar(select(...))         # the claim has been made: read, then write
        connection.execute(update(...))

`transaction` opens the transaction, claims first, and commits or rolls back. `claim` does the same within a
transaction of your own: make it the first statement. With an ORM session that is
`guard.claim(session.connection(), hold.fence)`. `AsyncSQLGuard` has the same words with `await`.

Promised, at every isolation level:

- What `admit` refuses is refused, with StaleToken or FenceMismatch, and the guard's table is as it was.
- A claim locks the resource's row until the transaction ends, also for a token that was seen before. So claims of one
  resource come one after the other: whoever waits for a claim sees what the one before committed.
- Reads register too. Claim, read and commit: from then on a late write of an older holder is refused.
- A claim that was rolled back was never made.
- `transaction` with a hold: a process that is stopped within it keeps its successor waiting no longer than its hold had
  left at the beginning (not on SQLite, whose successors hear "database is locked" in that time of theirs).
- `transaction` commits with its claim or not at all. A database may end the transaction within the block: MariaDB and
  MySQL roll back after a deadlock (1213), SQLite after ON CONFLICT ROLLBACK or a full disk. The claim's lock is free
  then, and whoever catches the error and goes on would write without it. PostgreSQL answers the COMMIT of a failed
  transaction with a silent ROLLBACK. All of that ends in StoreRefused, and nothing is written.

Not promised:

- Anything about statements *before* the claim. What they read may be out of date, and what they wrote is only taken
  back with the transaction. PostgreSQL, MariaDB and MySQL at REPEATABLE READ read from the snapshot of their first
  read; where that is older than the last claim, the claim is refused: by PostgreSQL with 40001, on the others, which
  do not look by themselves, by this guard with GuardBusy. Two claims in one transaction may meet with the same.
- That a transaction succeeds at first try. Conflicts are answered in the database's own words, as SQLAlchemy's
  DBAPIError: 40001 and 40P01 on PostgreSQL, 1213, 1205 and 1020 on MariaDB and MySQL, "database is locked" on SQLite.
  Then, and for GuardBusy, run the whole transaction again. READ COMMITTED has the fewest: the claim is the lock.
- That `claim` in a transaction of your own lasts until your commit: nobody looks at that. After any DBAPIError leave
  the block and let the transaction be rolled back; never repeat a single statement.
- That an ORM session reads again what it has. Objects that it loaded before the claim go on showing old values, also
  when a query finds them. Take a new Session for each claim, such as `Session(connection)` within `transaction`, or
  call `session.expire_all()` right after the claim.
- Anything for writers that do not claim, in AUTOCOMMIT (refused: the write would be a transaction of its own), after
  a savepoint with the claim was rolled back (on SQLite in the driver's default mode: or released), or after a
  statement that ends the transaction by itself, as CREATE TABLE does on MariaDB and MySQL (`transaction` says so, but
  what such a statement has committed stays). Nor on a cursor of the driver's that you take from under SQLAlchemy.

The token in a table of your own. One column, `fence BIGINT NOT NULL DEFAULT 0`, and one statement:

    UPDATE accounts SET balance = :balance, fence = :token WHERE id = :id AND fence <= :token

No row matched: the token is stale (or there is no such row). It is enough where the store has one incarnation, holds
exclude each other (no seats, no readers, one lock name for this row), and the write is this one statement. What
you compute from a read needs a claim before that read, in the same transaction or an earlier one:

    UPDATE accounts SET fence = :token WHERE id = :id AND fence <= :token

SQLAlchemy counts matched rows on all three; a bare MySQL driver counts changed ones unless FOUND_ROWS is set.

Reading order:

    guard     SQLGuard and AsyncSQLGuard
    claim     the claim on each kind of database; the commit that proves it
    table     the guard's table, and its statements
    checks    checks of a guard's arguments
"""

from tenure.errors import ServerMissing, how_to_install

try:
    import sqlalchemy.ext.asyncio  # noqa: F401  # the newest part that is needed
except ImportError as _error:
    raise ServerMissing(
        f"tenure.fencing.sql needs the package sqlalchemy, 2.0 or later ({_error}): {how_to_install('sql')}"
    ) from _error

from tenure.fencing.sql.guard import AsyncSQLGuard, SQLGuard

__all__ = ["AsyncSQLGuard", "SQLGuard"]
