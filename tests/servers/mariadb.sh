#!/bin/bash
# mariadb.sh DIR PORT [mariadbd options]
# Starts MariaDB on 127.0.0.1:PORT with its data in DIR (made from the ready data folder when new) and prints "ready PID".
# HELD=1: stays, and kills the server when standard input ends; REMOVE=1 then removes DIR too.
set -euo pipefail
. "$(dirname "$0")/env.sh"
D=$1 PORT=$2
shift 2
command -v mariadbd >/dev/null && [ -d "$MARIADB_DATA" ] || die "MariaDB is not installed: run make test (or tests/servers/install.sh mariadb)"
mkdir -p "$D/tmp"
[ -d "$D/data" ] || cp -r "$MARIADB_DATA" "$D/data"
READY="mariadb-admin --no-defaults -h127.0.0.1 -P$PORT -uroot -p$ROOT_PASSWORD ping"
keep "$D" "$D/server.pid" "$D/error.log" mariadbd --no-defaults --user="$SERVER_USER" --datadir="$D/data" --tmpdir="$D/tmp" --socket="$D/s.sock" \
  --port="$PORT" --bind-address=127.0.0.1 --pid-file="$D/mariadbd.pid" --log-error="$D/error.log" \
  --server-id=1 --log-bin="$D/data/mariadb-bin" --binlog-format=ROW --binlog-row-image=FULL --binlog-row-metadata=FULL \
  --gtid-domain-id=0 --gtid-strict-mode=ON --sync-binlog=0 --innodb-flush-log-at-trx-commit=2 --innodb-doublewrite=OFF \
  --innodb-buffer-pool-size=64M --max-allowed-packet=64M "$@"
