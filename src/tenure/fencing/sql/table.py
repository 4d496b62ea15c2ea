"""The guard's table, and how a fence is written into a row of it and read back."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    BindParameter,
    Column,
    ColumnElement,
    DateTime,
    Dialect,
    Integer,
    MetaData,
    Row,
    Select,
    String,
    Table,
    TypeDecorator,
    bindparam,
    func,
    select,
)
from sqlalchemy.dialects import mysql, postgresql

from tenure._core.base.limits import FENCE_HOLDERS_MAX, RESOURCE_BYTES_MAX
from tenure.errors import InvalidFence, InvalidOption, StoreRefused
from tenure.fencing._fence import Fence

_LINE_CHARACTERS_MAX: Final = 4096
_IDS_CHARACTERS_MAX: Final = 21 * FENCE_HOLDERS_MAX
MYSQL: Final = ("mysql", "mariadb")


class UTF8(TypeDecorator[str]):
    """A text that MariaDB and MySQL get as the bytes of its UTF-8, whatever the connection's character set.

    They travel as hexadecimal digits: not every driver can send bytes (aiomysql with PyMySQL 1.2.3 can't).
    """

    impl = String
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        return None if value is None else value.encode().hex()

    def bind_expression(self, bindvalue: BindParameter[str]) -> ColumnElement[str]:
        return func.unhex(bindvalue)


RESOURCE: Final = String().with_variant(UTF8(), *MYSQL)


def fence_table(name: str, schema: str | None, metadata: MetaData) -> Table:
    """The table under this name. Raises InvalidOption where it is another one's."""
    if not isinstance(name, str) or not name:
        raise InvalidOption(f"the name of a table is a text, not {name!r}")
    columns = (
        Column("resource", _exact(RESOURCE_BYTES_MAX), primary_key=True),
        Column("line", _ascii(_LINE_CHARACTERS_MAX), nullable=False),
        Column("incarnation", Integer, nullable=False),
        Column("token", BigInteger, nullable=False),
        Column("ids", _ascii(_IDS_CHARACTERS_MAX), nullable=False),
        Column("claims", BigInteger, nullable=False),
        Column("changed_at", DateTime(timezone=True), nullable=False),
    )
    table = Table(
        name,
        metadata,
        *columns,
        schema=schema,
        keep_existing=True,  # a second guard shares it
        mysql_engine="InnoDB",  # no other has the locks
        mariadb_engine="InnoDB",
    )
    if table.c.keys() != [column.name for column in columns]:
        raise InvalidOption(f"this metadata has another table named {table.fullname!r}; give the guard's another name")
    return table


def _exact(length: int) -> String:
    """A text that equals itself only. MySQL's collations overlook case, accents or trailing spaces; bytes don't."""
    exact = String(length).with_variant(postgresql.VARCHAR(length, collation="C"), "postgresql")
    return exact.with_variant(mysql.VARBINARY(length), *MYSQL)


def _ascii(length: int) -> String:
    return String(length).with_variant(mysql.VARCHAR(length, charset="ascii", collation="ascii_bin"), *MYSQL)


def select_fence(table: Table) -> Select[tuple[str, int, int, str]]:
    """Select the fence that is recorded for `key`."""
    columns = (table.c.line, table.c.token, table.c.incarnation, table.c.ids)
    return select(*columns).where(is_key(table))


def is_key(table: Table) -> ColumnElement[bool]:
    """The condition that a row is that of `key`."""
    return table.c.resource == bindparam("key", type_=RESOURCE)


def fence_in(row: Row[Any] | None) -> Fence | None:  # Any: two kinds of selects begin with these columns
    if row is None:
        return None
    try:
        return Fence(row.line, row.token, row.incarnation, tuple(row.ids.split(".")[1:]))
    except InvalidFence as error:
        raise StoreRefused(
            f"the record of token {row.token} of {row.line[:60]!r} in the guard's table is damaged ({error}). Nothing "
            "was written. Mend the row, or `forget` the resource"
        ) from error


def offered_values(table: Table) -> dict[str, object]:
    """The columns of a fence that is offered, as parameters."""
    types = {name: table.c[name].type for name in ("line", "incarnation", "token", "ids")}
    return {name: bindparam(f"offered_{name}", type_=kind) for name, kind in ({"resource": RESOURCE} | types).items()}


def offer(key: str, offered: Fence) -> dict[str, object]:
    """The values for `offered_values`. Each id has a dot before it, so that a pattern finds it."""
    return {
        "offered_resource": key,
        "offered_line": offered.line,
        "offered_incarnation": offered.incarnation,
        "offered_token": offered.token,
        "offered_ids": "".join(f".{one}" for one in offered.ids),
    }
