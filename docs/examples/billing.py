"""Billing: any number of these processes charge each open invoice exactly once, whichever of them stand still.

    TENURE_URL=etcd://127.0.0.1:2379/billing DATABASE_URL=postgresql+psycopg://127.0.0.1/billing python billing.py

Each invoice has a lock, so that no two processes set about the same one. One that was stopped knows nothing of its
successor: the guard refuses it, and the database ends its open transaction when its hold would have ended.
"""

import os

from sqlalchemy import Connection, Engine, create_engine, text
from sqlalchemy.exc import DBAPIError

import tenure
from tenure.fencing.sql import SQLGuard

guard = SQLGuard()


def work(client: tenure.Client, engine: Engine) -> None:
    """Charge until nothing is open: first what nobody else is at, then whatever others gave up."""
    patience = 0.0
    while invoices := open_invoices(engine):
        charged = [invoice for invoice in invoices if bill(client, engine, invoice, patience)]
        patience = 0.0 if charged else 5.0


def open_invoices(engine: Engine) -> list[int]:
    """Open invoices, in an order of this process's own."""
    with engine.connect() as connection:
        return list(connection.scalars(text("SELECT id FROM invoices WHERE NOT charged ORDER BY random()")))


def bill(client: tenure.Client, engine: Engine, invoice: int, patience: float) -> bool:
    """Charge the invoice under its lock; False where another process is at it, or was before."""
    try:
        with client.lock(f"invoice/{invoice}").acquire(timeout=patience) as hold:
            with guard.transaction(engine, hold) as connection:  # the claim comes first, so what is read now stays true
                return charge(connection, invoice, hold)
    except tenure.AcquireTimeout:
        return False
    except (tenure.LeaseLost, tenure.StaleToken, DBAPIError) as error:
        print(f"gave up {invoice}: {type(error).__name__}", flush=True)  # whether it was charged, the table knows
        return False


def charge(connection: Connection, invoice: int, hold: tenure.Hold) -> bool:
    """Write the charge down, unless somebody has."""
    asked = text("SELECT amount FROM invoices WHERE id = :invoice AND NOT charged")
    amount = connection.scalar(asked, {"invoice": invoice})
    if amount is None:
        return False
    values = {"invoice": invoice, "amount": amount, "token": hold.token}
    connection.execute(text("INSERT INTO charges (invoice, amount, token) VALUES (:invoice, :amount, :token)"), values)
    connection.execute(text("UPDATE invoices SET charged = true WHERE id = :invoice"), values)
    return True


def main() -> None:
    """Work with the store at TENURE_URL and the database at DATABASE_URL."""
    tenure.on_sigterm()
    engine = create_engine(os.environ["DATABASE_URL"])
    guard.create(engine)
    with tenure.connect() as client:
        work(client, engine)
    engine.dispose()


if __name__ == "__main__":
    main()
