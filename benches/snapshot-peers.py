"""Runs one other program's way of `benches/snapshot.rs`: bench.sbtest1 of a MariaDB into Parquet files.

Usage: snapshot-peers.py NAME PORT PASSWORD ROWS FOLDER
"""

import glob
import os
import subprocess
import sys

name, port, password, rows, folder = sys.argv[1:]


def duckdb():
    import duckdb
    import duckdb_extension_mysql_scanner

    base = os.path.dirname(duckdb_extension_mysql_scanner.__file__)
    extension = glob.glob(f"{base}/extensions/*/mysql_scanner.duckdb_extension")[0]
    db = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    db.execute(f"LOAD '{extension}'")
    db.execute(f"ATTACH 'host=127.0.0.1 user=root password={password} port={port} database=bench' AS m (TYPE mysql)")
    db.execute(f"COPY (SELECT * FROM m.sbtest1) TO '{folder}/out.parquet' (FORMAT parquet, COMPRESSION zstd)")
    return db.execute(f"SELECT count(*) FROM '{folder}/out.parquet'").fetchone()[0]


def dlt():
    os.environ["RUNTIME__DLTHUB_TELEMETRY"] = "false"
    import dlt
    from dlt.sources.sql_database import sql_table

    url = f"mysql+pymysql://root:{password}@127.0.0.1:{port}/bench"
    table = sql_table(credentials=url, table="sbtest1", backend="connectorx", reflection_level="minimal",
                      backend_kwargs={"conn": f"mysql://root:{password}@127.0.0.1:{port}/bench"})
    pipeline = dlt.pipeline("bench", destination=dlt.destinations.filesystem(f"file://{folder}"), dataset_name="d",
                            pipelines_dir=folder + "/state")
    pipeline.run(table, loader_file_format="parquet")
    import pyarrow.parquet as parquet

    files = glob.glob(f"{folder}/d/sbtest1/*.parquet")
    return sum(parquet.read_metadata(file).num_rows for file in files)


def rivet():
    config = f"""source:
  type: mysql
  url: "mysql://root:{password}@127.0.0.1:{port}/bench"
exports:
  - name: sbtest1
    query: "SELECT * FROM sbtest1"
    mode: full
    format: parquet
    compression: zstd
    destination:
      type: local
      path: "{folder}"
"""
    with open(f"{folder}/rivet.yaml", "w") as file:
        file.write(config)
    program = os.path.join(os.path.dirname(sys.executable), "rivet")
    done = subprocess.run([program, "run", "--config", f"{folder}/rivet.yaml"], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit((done.stdout + done.stderr).strip().replace("\n", " | "))
    import duckdb

    return duckdb.execute(f"SELECT count(*) FROM '{folder}/**/*.parquet'").fetchone()[0]


found = {"duckdb": duckdb, "dlt": dlt, "rivet": rivet}[name]()
if found != int(rows):
    sys.exit(f"{found} rows instead of {rows}")
