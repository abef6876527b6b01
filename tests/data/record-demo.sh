#!/bin/bash
# record-demo.sh
# Records the binlog files of `make demo` from real servers into tests/data/demo: a shop on MySQL, its warehouse on
# MariaDB. The rows and their commit times are always the same (fixed seed, SET TIMESTAMP); what differs between two
# recordings is what the servers put in by themselves. Needs tests/servers/install.sh mysql mariadb, and python3.
# Beside the files it leaves what the tables hold at the end (expected/DATABASE.TABLE.tsv), as the servers tell it.
set -euo pipefail
HERE=$(cd "$(dirname "$0")" && pwd)
SERVERS=$HERE/../servers
OUT=$HERE/demo
WORK=$(mktemp -d)
. "$SERVERS/env.sh"

port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
stop() {
  local pid
  pid=$(cat "$1/server.pid")
  kill "$pid"
  while kill -0 "$pid" 2>/dev/null; do sleep 0.1; done
}
cleanup() {
  for pid in "$WORK"/*/server.pid; do [ ! -e "$pid" ] || kill -9 "$(cat "$pid")" 2>/dev/null || true; done
  rm -rf "$WORK"
}
trap cleanup EXIT

# dump CLIENT DATABASE TABLE ORDER COLUMNS: tab-separated, null as \N, times with six digits.
dump() {
  local client=$1 database=$2 table=$3 order=$4 columns=$5 selected
  selected=$(echo "$columns" | sed -E "s/([a-z_]+_at)/DATE_FORMAT(\1,'%Y-%m-%d %H:%i:%s.%f')/g")
  { echo "$columns" | tr ',' '\t' | tr -d ' '
    $client -N -B -e "SET time_zone='+00:00'; SELECT $selected FROM $database.$table ORDER BY $order" | sed 's/\bNULL\b/\\N/g'; } >"$OUT/expected/$database.$table.tsv"
}

rm -rf "$OUT"
mkdir -p "$OUT/expected"

P=$(port)
mkdir -p "$WORK/shop" && cp -r "$MYSQL_DATA" "$WORK/shop/data"
printf '[auto]\nserver-uuid=5a0b1e00-0000-4000-8000-000000000001\n' >"$WORK/shop/data/auto.cnf"
"$SERVERS/mysql.sh" "$WORK/shop" "$P" --log-bin="$WORK/shop/data/shop-bin" --server-id=101 >/dev/null
SHOP="$MYSQL_ROOT/usr/bin/mysql --no-defaults -h127.0.0.1 -P$P -uroot -p$ROOT_PASSWORD --default-character-set=utf8mb4"
python3 "$HERE/record_demo.py" shop >"$WORK/shop.sql"
$SHOP <"$WORK/shop.sql" 2>/dev/null
dump "$SHOP" shop customers id "id, name, email, country, tier, preferences, created_at" 2>/dev/null
dump "$SHOP" shop products sku "sku, name, price, stock, tags, updated_at" 2>/dev/null
dump "$SHOP" shop orders id "id, customer_id, status, total, placed_at, note, channel" 2>/dev/null
dump "$SHOP" shop order_items "order_id, line" "order_id, line, sku, quantity, price" 2>/dev/null
stop "$WORK/shop"
cp "$WORK"/shop/data/shop-bin.0* "$OUT/"

P=$(port)
"$SERVERS/mariadb.sh" "$WORK/warehouse" "$P" --log-bin="$WORK/warehouse/data/warehouse-bin" --server-id=202 >/dev/null
WAREHOUSE="mariadb --no-defaults -h127.0.0.1 -P$P -uroot -p$ROOT_PASSWORD --default-character-set=utf8mb4"
python3 "$HERE/record_demo.py" warehouse >"$WORK/warehouse.sql"
$WAREHOUSE <"$WORK/warehouse.sql"
dump "$WAREHOUSE" warehouse stock "sku, site" "sku, site, quantity, counted_at"
dump "$WAREHOUSE" warehouse shipments id "id, order_id, carrier, weight_kg, shipped_at, delivered_at, remark"
stop "$WORK/warehouse"
cp "$WORK"/warehouse/data/warehouse-bin.0* "$OUT/"

chmod 644 "$OUT"/*.0*
du -sh "$OUT"
