#!/bin/bash
# Records the log files of this folder from two running servers.
#   MARIADB="mariadb -S ... -uroot" MARIADB_LOGS=<data folder> MYSQL="mysql -S ... -uroot -p..." MYSQL_LOGS=<data folder> ./record.sh
set -euo pipefail
cd "$(dirname "$0")"

mariadb_log() { # name, statements before, script...
  local name=$1 before=$2; shift 2
  $MARIADB -e "reset master; $before"
  cat "$@" | $MARIADB --default-character-set=utf8mb4
  $MARIADB -e "flush binary logs; set global log_bin_compress = OFF"
  cp "$MARIADB_LOGS/mariadb-bin.000001" "$name.000001"
}

mysql_log() {
  local name=$1 before=$2; shift 2
  $MYSQL -e "reset binary logs and gtids"
  (echo "$before"; cat "$@") | $MYSQL --default-character-set=utf8mb4
  $MYSQL -e "flush binary logs"
  cp "$MYSQL_LOGS/binlog.000001" "$name.000001"
}

mariadb_log mariadb-types "" types.sql types-mariadb.sql
mariadb_log mariadb-compressed "set global log_bin_compress = ON; set global log_bin_compress_min_len = 10" compressed.sql
mysql_log mysql-types "" types.sql types-mysql.sql
mysql_log mysql-compressed "set session binlog_transaction_compression = ON;" compressed.sql
mysql_log mysql-tagged "" tagged-mysql.sql
mariadb_log mariadb-images "" images.sql
mysql_log mysql-images "" images.sql images-mysql.sql
