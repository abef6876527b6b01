#!/bin/bash
# dynamodb.sh DIR PORT
# Starts moto's DynamoDB and DynamoDB Streams on 127.0.0.1:PORT, all in memory, and prints "ready PID". Any keys will do.
# HELD and REMOVE as in mysql.sh.
set -euo pipefail
. "$(dirname "$0")/env.sh"
D=$1 PORT=$2
MOTO=$CACHE/dynamodb-venv/bin/moto_server
[ -x "$MOTO" ] || die "moto is not installed: run make test (or tests/servers/install.sh dynamodb)"
mkdir -p "$D"
ready_dynamodb() {
  python3 -c 'import sys, urllib.request; urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[1]}/moto-api/data.json", timeout=2)' "$PORT"
}
READY=ready_dynamodb
keep "$D" "$D/server.pid" "$D/error.log" "$MOTO" -H 127.0.0.1 -p "$PORT"
