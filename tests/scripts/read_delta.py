#!/usr/bin/env python3
"""Reads Delta tables with an engine that is not Alluvium's, for tests/it/readers.rs.

    read_delta.py ENGINE TABLE...                     all rows of each table
    read_delta.py ENGINE --where CONDITION TABLE...   only rows for which an SQL condition holds
    read_delta.py ENGINE --changes TABLE...           the change data feed from version 0 on, without its times
    read_delta.py spark:PORT --sql STATEMENT...       lets Spark run SQL statements, and prints the rows of each that asks
    read_delta.py spark:PORT --run STATEMENT...       lets Spark run SQL statements instead, and prints nothing

| ENGINE      | what reads                                            | with the Python of                |
|-------------|-------------------------------------------------------|-----------------------------------|
| duckdb      | DuckDB's extension delta                              | $ALLUVIUM_CACHE/duckdb-venv       |
| deltalake   | the deltalake package's QueryBuilder (and `load_cdf`) | $ALLUVIUM_CACHE/delta-venv        |
| pyarrow     | the deltalake package's `to_pyarrow_table`            | the same                          |
| polars      | `polars.scan_delta`; `DeltaTable.scan` where a table  | the same                          |
|             | is divided, but for the engine polars:scan_delta      |                                   |
| spark:PORT  | Spark; PORT is a Spark Connect server's               | $ALLUVIUM_CACHE/spark-venv        |

TABLE is a table's folder, or FOLDER@VERSION for an older version. Prints one JSON object per table and line:
{"columns": [...], "rows": [[...], ...]}. A value is null, {"float": digits} or a string: whole numbers and decimals in
digits, booleans as 1 or 0, binary values and lists of FLOAT in hexadecimal, times in UTC with microseconds.
Standard error begins with a line `engine: ` and the engine's name and version.
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


def arrow_rows(table):
    """The names of a pyarrow table's columns, and its rows."""
    columns = [column.to_pylist() for column in table.columns]
    return table.column_names, zip(*columns)


class DuckDb:
    def __init__(self, _port):
        import duckdb

        self.connection = duckdb.connect(config={"autoinstall_known_extensions": "false"})
        pattern = sysconfig.get_paths()["purelib"] + "/duckdb_extension_delta/extensions/*/delta.duckdb_extension"
        self.connection.execute(f"LOAD '{glob.glob(pattern)[0]}'")
        query = "SELECT extension_version FROM duckdb_extensions() WHERE extension_name = 'delta'"
        extension = self.connection.execute(query).fetchone()[0]
        self.name = f"DuckDB {duckdb.__version__}, extension delta {extension}"

    def read(self, folder, version, condition):
        def expression(name, kind):
            # DuckDB's Python values of this type need a package of time zones.
            return f'make_timestamp(epoch_us("{name}"))' if str(kind) == "TIMESTAMP WITH TIME ZONE" else f'"{name}"'

        at = "" if version is None else f", version => {version}"
        table = self.connection.sql(f"SELECT * FROM delta_scan('{folder}'{at}) WHERE {condition}")
        rows = table.project(", ".join(map(expression, table.columns, table.types))).fetchall()
        return table.columns, rows


class DeltaLake:
    def __init__(self, _port):
        import deltalake
        import pyarrow

        self.deltalake, self.pyarrow = deltalake, pyarrow
        self.name = f"deltalake {deltalake.__version__} for Python"

    def read(self, folder, version, condition):
        query = self.deltalake.QueryBuilder().register("t", self.deltalake.DeltaTable(folder, version=version))
        return arrow_rows(self.pyarrow.table(query.execute(f"SELECT * FROM t WHERE {condition}").read_all()))

    def changes(self, folder):
        changes = self.deltalake.DeltaTable(folder).load_cdf(starting_version=0).read_all()
        return arrow_rows(self.pyarrow.table(changes).drop_columns("_commit_timestamp"))


class PyArrow(DeltaLake):
    def __init__(self, _port):
        super().__init__(_port)
        self.name = f"pyarrow {self.pyarrow.__version__} with {self.name}"

    def read(self, folder, version, condition):
        assert condition == "true", "only whole tables"
        return arrow_rows(self.deltalake.DeltaTable(folder, version=version).to_pyarrow_table())


class Polars:
    def __init__(self, how):
        import deltalake
        import polars

        self.deltalake, self.polars, self.is_always_native = deltalake, polars, how == "scan_delta"
        self.name = f"polars {polars.__version__} with deltalake {deltalake.__version__}"

    def read(self, folder, version, condition):
        delta = self.deltalake.DeltaTable(folder, version=version)
        if delta.metadata().partition_columns and not self.is_always_native:
            # `scan_delta` takes partition values from the paths of files. The log has them; paths need not.
            table = self.polars.DataFrame(delta.scan()).lazy()
        else:
            table = self.polars.scan_delta(folder, version=version)
        if condition != "true":
            table = self.polars.SQLContext(t=table).execute(f"SELECT * FROM t WHERE {condition}")
        return arrow_rows(table.collect().to_arrow())


class Spark:
    def __init__(self, port):
        from pyspark.sql import SparkSession

        self.session = SparkSession.builder.remote(f"sc://127.0.0.1:{port}").getOrCreate()
        self.name = f"Spark {self.session.version}"

    def read(self, folder, version, condition):
        at = "" if version is None else f" VERSION AS OF {version}"
        return self.rows(f"SELECT * FROM delta.`{folder}`{at} WHERE {condition}")

    def changes(self, folder):
        return self.rows(f"SELECT * EXCEPT (_commit_timestamp) FROM table_changes_by_path('{folder}', 0)")

    def rows(self, query):
        # Through Arrow: a Row would shift timestamps to this process's time zone.
        return arrow_rows(self.session.sql(query).toArrow())

    def run(self, statement):
        self.session.sql(statement).collect()


ENGINES = {"duckdb": DuckDb, "deltalake": DeltaLake, "pyarrow": PyArrow, "polars": Polars, "spark": Spark}


def main():
    kind, _, port = sys.argv[1].partition(":")
    engine = ENGINES[kind](port)
    print("engine:", engine.name, file=sys.stderr)
    what, condition, tables = sys.argv[2], "true", sys.argv[3:]
    if what == "--run":
        for statement in tables:
            engine.run(statement)
        return
    if what == "--sql":
        for statement in tables:
            lines = [line for line in statement.splitlines() if not line.startswith("--")]
            if lines[0].startswith(("SELECT", "WITH")):
                columns, rows = engine.rows(statement)
                print(json.dumps({"columns": columns, "rows": [[canonical(value) for value in row] for row in rows]}))
            else:
                engine.run(statement)
        return
    if what == "--where":
        condition, tables = tables[0], tables[1:]
    elif what != "--changes":
        tables = sys.argv[2:]
    for table in tables:
        folder, _, version = table.partition("@")
        if what == "--changes":
            columns, rows = engine.changes(folder)
        else:
            columns, rows = engine.read(folder, int(version) if version else None, condition)
        print(json.dumps({"columns": columns, "rows": [[canonical(value) for value in row] for row in rows]}))


main()
