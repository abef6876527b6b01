#!/bin/bash
# mysql.sh DIR PORT [mysqld options]
# Starts MySQL on 127.0.0.1:PORT with its data in DIR (made from the ready data folder when new) and prints "ready PID".
# HELD=1: stays, and kills the server when standard input ends; REMOVE=1 then removes DIR too.
set -euo pipefail
. "$(dirname "$0")/env.sh"
D=$1 PORT=$2
shift 2
[ -x "$MYSQL_ROOT/usr/sbin/mysqld" ] && [ -d "$MYSQL_DATA" ] || die "MySQL is not installed: run make test (or tests/servers/install.sh mysql)"
mkdir -p "$D/tmp" "$D/files"
[ -d "$D/data" ] || cp -r "$MYSQL_DATA" "$D/data"
READY="$MYSQL_ROOT/usr/bin/mysqladmin --no-defaults -h127.0.0.1 -P$PORT -uroot -p$ROOT_PASSWORD ping"
# shellcheck disable=SC2046
keep "$D" "$D/server.pid" "$D/error.log" "$MYSQL_ROOT/usr/sbin/mysqld" $(mysql_base) --datadir="$D/data" --tmpdir="$D/tmp" --socket="$D/s.sock" \
  --port="$PORT" --bind-address=127.0.0.1 --mysqlx=OFF --pid-file="$D/mysqld.pid" --log-error="$D/error.log" --secure-file-priv="$D/files" \
  --server-id=1 --log-bin="$D/data/binlog" --binlog-format=ROW --binlog-row-image=FULL --binlog-row-metadata=FULL \
  --gtid-mode=ON --enforce-gtid-consistency=ON --sync-binlog=0 --innodb-flush-log-at-trx-commit=2 --innodb-doublewrite=OFF \
  --innodb-buffer-pool-size=64M --innodb-redo-log-capacity=32M --performance-schema=OFF --max-allowed-packet=64M "$@"
