#!/usr/bin/env python3
"""Reads Delta tables with an engine that is not Alluvium's, for tests/it/readers.rs.

    read_delta.py duckdb TABLE...           with the Python of $ALLUVIUM_CACHE/duckdb-venv
    read_delta.py spark:PORT TABLE...       with that of spark-venv; PORT is a Spark Connect server's

    read_delta.py ENGINE --where CONDITION TABLE... reads only rows for which an SQL condition holds
    read_delta.py spark:PORT --changes TABLE...     reads the change data feed from version 0 on, without its times
    read_delta.py spark:PORT --optimize TABLE...    lets Spark compact the tables instead, and prints nothing

TABLE is a table's folder, or FOLDER@VERSION for an older version. Prints one JSON object per table and line:
{"columns": [...], "rows": [[...], ...]}. A value is null, {"float": digits} or a string: whole numbers and decimals in
digits, booleans as 1 or 0, binary values and lists of FLOAT in hexadecimal, times in UTC with microseconds.
"""
import datetime
import decimal
import glob
import json
import struct
import sys
import sysconfig


def canonical(value):
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, float):
        # Not every JSON reader gives back the number that was written.
        return {"float": repr(value)}
    if isinstance(value, (bool, int)):
        return str(int(value))
    if isinstance(value, decimal.Decimal):
        return format(value, "f")
    if isinstance(value, datetime.datetime):
        if value.tzinfo is not None:
            value = value.astimezone(datetime.timezone.utc).replace(tzinfo=None)
        return value.isoformat(" ", "microseconds")
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value).hex().upper()
    if isinstance(value, list):
        return struct.pack(f"<{len(value)}f", *value).hex().upper()
    raise TypeError(f"no canonical text for {type(value)}")


def duckdb_reader():
    import duckdb

    connection = duckdb.connect(config={"autoinstall_known_extensions": "false"})
    pattern = sysconfig.get_paths()["purelib"] + "/duckdb_extension_delta/extensions/*/delta.duckdb_extension"
    connection.execute(f"LOAD '{glob.glob(pattern)[0]}'")

    def expression(name, kind):
        # DuckDB's Python values of this type need a package of time zones.
        return f'make_timestamp(epoch_us("{name}"))' if str(kind) == "TIMESTAMP WITH TIME ZONE" else f'"{name}"'

    def read(folder, version, condition):
        at = "" if version is None else f", version => {version}"
        table = connection.sql(f"SELECT * FROM delta_scan('{folder}'{at}) WHERE {condition}")
        rows = table.project(", ".join(map(expression, table.columns, table.types))).fetchall()
        return table.columns, rows

    return read


def spark_session(port):
    from pyspark.sql import SparkSession

    return SparkSession.builder.remote(f"sc://127.0.0.1:{port}").getOrCreate()


def spark_reader(port):
    session = spark_session(port)

    def read(folder, version, condition):
        at = "" if version is None else f" VERSION AS OF {version}"
        query = f"SELECT * FROM delta.`{folder}`{at} WHERE {condition}"
        if condition == "--changes":
            query = f"SELECT * EXCEPT (_commit_timestamp) FROM table_changes_by_path('{folder}', 0)"
        # Through Arrow: a Row would shift timestamps to this process's time zone.
        table = session.sql(query).toArrow()
        columns = [column.to_pylist() for column in table.columns]
        return table.column_names, zip(*columns)

    return read


def main():
    engine, _, port = sys.argv[1].partition(":")
    if sys.argv[2] == "--optimize":
        session = spark_session(port)
        for folder in sys.argv[3:]:
            session.sql(f"OPTIMIZE delta.`{folder}`").collect()
        return
    read = spark_reader(port) if engine == "spark" else duckdb_reader()
    condition, tables = "true", sys.argv[2:]
    if tables[0] == "--where":
        condition, tables = tables[1], tables[2:]
    elif tables[0] == "--changes":
        condition, tables = tables[0], tables[1:]
    for table in tables:
        folder, _, version = table.partition("@")
        columns, rows = read(folder, version or None, condition)
        print(json.dumps({"columns": columns, "rows": [[canonical(value) for value in row] for row in rows]}))


main()
