#!/usr/bin/env python3
"""Runs tests/data/ddl/corpus.sql on a server and prints what becomes of each block's table t.

    record_ddl.py mariadb -S /path/to/socket -uroot > tests/data/ddl/mariadb-10.11.txt
    record_ddl.py mysql -S /path/to/socket -uroot > tests/data/ddl/mysql-9.7.txt

A line for each column: block number, name, COLUMN_TYPE, CHARACTER_SET_NAME, IS_NULLABLE, place in the primary key (or 0), and
where the block has an INSERT the value in its row (UTF-8 in hex; a TIME in microseconds, a BIT as a number), apart by tabs. A
block whose table the server refuses to make is left out; other statements that it refuses get a line `block, refused, number`. The scratch
databases `ddl_corpus` and `other` are made and dropped.
"""
import pathlib
import subprocess
import sys

CORPUS = pathlib.Path(__file__).parent.parent / "data" / "ddl" / "corpus.sql"
DATABASE = "ddl_corpus"


def query(sql):
    command = sys.argv[1:] + ["-N", "--raw", "--default-character-set=utf8mb4"]
    answer = subprocess.run(command, input=sql.encode(), capture_output=True)
    return answer.returncode == 0, [line.split("\t") for line in answer.stdout.decode().splitlines()]


def value(column):
    name, kind = "`" + column[0].replace("`", "``") + "`", column[1]
    if kind.startswith("time") and not kind.startswith("timestamp"):
        seconds = f"time_to_sec({name})"
        name = f"cast(sign({seconds}) * (truncate(abs({seconds}), 0) * 1000000 + microsecond({name})) as signed)"
    if kind.startswith("bit"):
        name = f"{name} + 0"
    return f"coalesce(hex(convert(concat({name}) using utf8mb4)), 'NULL')"


def record(number, statements):
    query(f"drop database if exists {DATABASE}; drop database if exists other;"
          f"create database {DATABASE} charset latin1; create database other charset latin1")
    refused = []
    for index, statement in enumerate(statements):
        done, _ = query(f"set sql_mode = 'ALLOW_INVALID_DATES'; use {DATABASE}; {statement};")
        if not done:
            refused.append(index)
    _, columns = query(f"""
        select c.column_name, c.column_type, coalesce(c.character_set_name, 'NULL'), c.is_nullable, coalesce(k.ordinal_position, 0)
        from information_schema.columns c left join information_schema.key_column_usage k
          on k.table_schema = c.table_schema and k.table_name = c.table_name and k.column_name = c.column_name
          and k.constraint_name = 'PRIMARY'
        where c.table_schema = '{DATABASE}' and c.table_name = 't' order by c.ordinal_position""")
    values = []
    if any(statement.startswith("insert") for statement in statements):
        _, rows = query(f"select {', '.join(value(column) for column in columns)} from {DATABASE}.t")
        values = rows[0]
    if not columns:
        return
    for index in refused:
        print(number, "refused", index, sep="\t")
    for index, column in enumerate(columns):
        print(number, *column, *values[index:index + 1], sep="\t")


def main():
    blocks = [[line for line in block.splitlines() if not line.startswith("--")] for block in CORPUS.read_text().split("\n\n")]
    for number, lines in enumerate(blocks):
        # A line that begins with # or a space goes on with the statement before it.
        statements = []
        for line in lines:
            if line[:1] in "# " and statements:
                statements[-1] += "\n" + line
            else:
                statements.append(line)
        if statements:
            record(number, statements)
    query(f"drop database if exists {DATABASE}; drop database if exists other")


main()
