#!/bin/bash
# demo.sh ALLUVIUM: replays the recorded binlog files into ./demo-lake and shows what can be asked of it (`make demo`).
set -euo pipefail
cd "$(dirname "$0")/../.."
ALLUVIUM=$1
rm -rf demo-lake

show() { # show JOB QUERY: the command as one would type it, then its result
  printf '\n$ alluvium sql -j %s "%s"\n' "$1" "$2"
  "$ALLUVIUM" sql -j "$1" "$2"
}

echo "A shop on MySQL and its warehouse on MariaDB, from the binlog files in tests/data/demo:"
for job in jobs/demo.yaml jobs/demo-warehouse.yaml; do
  printf '\n$ alluvium run -j %s\n' "$job"
  "$ALLUVIUM" run -j "$job"
done
show jobs/demo.yaml "SELECT status, channel, COUNT(*) AS orders, SUM(total) AS total FROM orders GROUP BY status, channel ORDER BY total DESC"
show jobs/demo.yaml "SELECT p.name, SUM(i.quantity) AS sold, p.stock FROM order_items i JOIN products p ON p.sku = i.sku GROUP BY p.name, p.stock ORDER BY sold DESC LIMIT 12"
show jobs/demo-warehouse.yaml "SELECT site, SUM(quantity) AS pieces FROM stock GROUP BY site ORDER BY site"
echo
echo "Time travel: one order then and now."
show jobs/demo.yaml "SELECT 'then' AS at, id, status, total FROM orders VERSION AS OF 2 WHERE id = 1020 UNION ALL SELECT 'now', id, status, total FROM orders WHERE id = 1020"
cat <<'TEXT'

The tables are Delta tables in ./demo-lake, for Spark, DuckDB and others as well. Next:
  alluvium status -j jobs/demo.yaml                      what each table holds, and up to where
  alluvium init --url mysql://user@host:3306 --tables 'shop.*'   a job file for a server of yours
  alluvium check -j alluvium.yaml                        what your server still lacks, with the statement that mends it
  alluvium run -j alluvium.yaml                          the first load, then all changes up to now
TEXT
