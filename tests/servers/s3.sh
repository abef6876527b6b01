#!/bin/bash
# s3.sh DIR PORT
# Starts SeaweedFS's S3 endpoint on 127.0.0.1:PORT with its data in DIR and prints "ready PID"; it needs the ports
# PORT to PORT+6 for its parts. Keys alluvium/alluvium-secret. HELD and REMOVE as in mysql.sh.
set -euo pipefail
. "$(dirname "$0")/env.sh"
D=$1 PORT=$2
WEED=$(ls "$CACHE"/s3-venv/bin/weed "$CACHE"/s3-venv/lib/python3*/site-packages/seaweedfs*/bin/weed 2>/dev/null | head -1) || true
[ -x "$WEED" ] || die "SeaweedFS is not installed: run make test (or tests/servers/install.sh s3)"
mkdir -p "$D/data"
cat >"$D/keys.json" <<'KEYS'
{"identities":[{"name":"alluvium","credentials":[{"accessKey":"alluvium","secretKey":"alluvium-secret"}],"actions":["Admin","Read","Write","List","Tagging"]}]}
KEYS
ready_s3() { python3 - "$PORT" <<'PY'
import socket, sys
socket.create_connection(("127.0.0.1", int(sys.argv[1])), 1).close()
PY
}
READY=ready_s3
keep "$D" "$D/server.pid" "$D/error.log" "$WEED" server -ip=127.0.0.1 -ip.bind=127.0.0.1 -dir="$D/data" -s3 -s3.port="$PORT" -s3.config="$D/keys.json" \
  -master.port=$((PORT + 1)) -volume.port=$((PORT + 2)) -filer.port=$((PORT + 3)) -s3.port.grpc=$((PORT + 4)) \
  -volume.max=20 -master.volumeSizeLimitMB=64 -master.volumePreallocate=false
