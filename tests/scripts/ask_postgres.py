#!/usr/bin/env python3
"""Asks a server of the PostgreSQL protocol by asyncpg, which takes every value in its binary format.

    ask_postgres.py PORT QUERY [TYPE:VALUE ...]   prints the rows as psql does with -A -t -F '|' -P null=NULL

The values are those of $1, $2, ...; types are int, text, decimal, date, time, bytes (hexadecimal) and null.

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
    if isinstance(value, bytes):
        return "\\x" + value.hex()
    if isinstance(value, decimal.Decimal):
        return format(value, "f")
    if isinstance(value, datetime.datetime):
        zone = "" if value.tzinfo is None else "+00"
        return value.replace(tzinfo=None).isoformat(" ", "microseconds") + zone
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else repr(value)
    return str(value)


def value(argument):
    kind, _, given = argument.partition(":")
    kinds = {"int": int, "text": str, "decimal": decimal.Decimal, "date": datetime.date.fromisoformat,
             "time": datetime.datetime.fromisoformat, "bytes": bytes.fromhex, "null": lambda _: None}
    return kinds[kind](given)


async def main(port, query, *values):
    connection = await asyncpg.connect(host="127.0.0.1", port=int(port), user="reader", database="lake", ssl=False)
    for row in await connection.fetch(query, *map(value, values)):
        print("|".join(text(found) for found in row))
    await connection.close()


asyncio.run(main(*sys.argv[1:]))
