#!/usr/bin/env python3
"""Asks a server of the PostgreSQL protocol by asyncpg, which takes every value in its binary format.

    ask_postgres.py PORT QUERY        prints the rows as psql does with -A -t -F '|' -P null=NULL

With the Python of $ALLUVIUM_CACHE/pg-venv.
"""
import asyncio
import datetime
import decimal
import sys

import asyncpg


def text(value):
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "t" if value else "f"
    if isinstance(value, decimal.Decimal):
        return format(value, "f")
    if isinstance(value, datetime.datetime):
        zone = "" if value.tzinfo is None else "+00"
        return value.replace(tzinfo=None).isoformat(" ", "microseconds") + zone
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else repr(value)
    return str(value)


async def main(port, query):
    connection = await asyncpg.connect(host="127.0.0.1", port=int(port), user="reader", database="lake", ssl=False)
    for row in await connection.fetch(query):
        print("|".join(text(value) for value in row))
    await connection.close()


asyncio.run(main(sys.argv[1], sys.argv[2]))
