#!/usr/bin/env python3
"""Asks a server for its conversion of every character code to utf8mb4, for src/source/mysql/charset/.

    charset_tables.py tables mysql -S /path/to/socket -uroot      the single-byte tables (single_byte/tables.rs)
    charset_tables.py checksums mysql -S /path/to/socket -uroot   the checksums in charset/tests.rs

The checksum of a charset is the CRC-32 of the UTF-8 text of each well-formed code, each followed by a newline: one
byte, then two bytes with a first byte from 80 on, then three bytes from 8F on, each in ascending order. Of gb18030's
codes with four bytes every tenth is taken, in a line of their own. A scratch database `charset_tables` is made and dropped.
"""
import subprocess
import sys
import zlib

WIDE = {"ucs2", "utf16", "utf16le", "utf32"}
UTF8 = {"binary", "utf8mb3", "utf8mb4", "utf8"}


def query(client, sql):
    command = client + ["-N", "--quick", "--default-character-set=utf8mb4"]
    answer = subprocess.run(command, input=sql.encode(), capture_output=True, check=True)
    return [line.split("\t") for line in answer.stdout.decode().splitlines()]


def prepare(client):
    query(client, """
        create database charset_tables; use charset_tables;
        create table d (d int); insert into d values (0),(1),(2),(3),(4),(5),(6),(7),(8),(9),(10),(11),(12),(13),(14),(15);
        create table n (n int unsigned primary key) select a.d*4096+b.d*256+c.d*16+e.d n from d a, d b, d c, d e;""")


def convert(client, charset, codes):
    """(code in hex, text in hex) of the well-formed ones among `codes`, a query."""
    return query(client, f"""set sql_mode='';
        select h, hex(convert(convert(unhex(h) using {charset}) using utf8mb4)) from ({codes}) codes
        where hex(convert(unhex(h) using {charset})) = h order by h""")


def single(client, charset):
    return convert(client, charset, "select lpad(hex(n), 2, '0') h from charset_tables.n where n < 256")


def literal(text):
    shown = (c if c.isprintable() and c not in '"\\' and c.isascii() or c.isalnum() else f"\\u{{{ord(c):x}}}" for c in text)
    return '"' + "".join(shown) + '"'


def tables(client, charsets):
    for charset, length in charsets:
        if int(length) > 1 or charset in UTF8 or charset == "ascii":
            continue
        codes = single(client, charset)
        high = [bytes.fromhex(text).decode() for code, text in codes if int(code, 16) >= 0x80]
        assert len(high) == 128 and all(len(text) == 1 for text in high), charset
        low = [(code, bytes.fromhex(text).decode()) for code, text in codes if int(code, 16) < 0x80 and code != text]
        print(f'    SingleByte::new(\n        "{charset}",\n        [')
        for at in range(0, 128, 16):
            print(f'            {literal("".join(high[at:at + 16]))},')
        print("        ],\n        &[" + ", ".join(f"(0x{code}, {literal(text)[1:-1]!r})" for code, text in low) + "],\n    ),")


def checksums(client, charsets):
    for charset, length in charsets:
        if charset in WIDE or charset in UTF8 or charset == "ascii":
            continue
        answer = single(client, charset)
        if int(length) > 1:
            answer += convert(client, charset, "select lpad(hex(n), 4, '0') h from charset_tables.n where n >= 0x8000")
        if int(length) == 3:
            answer += convert(client, charset, "select concat('8F', hex(n)) h from charset_tables.n where n >= 0x8080")
        print(f'    ("{charset}", {len(answer)}, 0x{checksum(answer):08x}),')
        if charset == "gb18030":
            byte = "lpad(hex({} + {}.n), 2, '0')"
            code = ", ".join(byte.format(first, name) for first, name in ((129, "a"), (48, "b"), (129, "c"), (48, "d")))
            answer = convert(client, charset, f"""select concat({code}) h
                from charset_tables.n a, charset_tables.n b, charset_tables.n c, charset_tables.n d
                where a.n < 126 and b.n < 10 and c.n < 126 and d.n = (a.n + b.n + c.n) % 10""")
            print(f'    four bytes: ("{charset}", {len(answer)}, 0x{checksum(answer):08x}),')


def checksum(answer):
    crc = 0
    for _, text in answer:
        crc = zlib.crc32(bytes.fromhex(text) + b"\n", crc)
    return crc


def main():
    what, client = sys.argv[1], sys.argv[2:]
    charsets = query(client, "select character_set_name, maxlen from information_schema.character_sets order by 1")
    prepare(client)
    try:
        {"tables": tables, "checksums": checksums}[what](client, charsets)
    finally:
        query(client, "drop database charset_tables")


main()
