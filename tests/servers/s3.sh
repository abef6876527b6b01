#!/bin/bash
# s3.sh DIR PORT
# Starts SeaweedFS's S3 endpoint on 127.0.0.1:PORT with its data in DIR and a bucket `lake`, and prints "ready PID".
# It takes the ports PORT to PORT+7 for its parts. Keys alluvium/alluvium-secret. HELD and REMOVE as in mysql.sh.
set -euo pipefail
. "$(dirname "$0")/env.sh"
D=$1 PORT=$2
WEED=$CACHE/s3-venv/bin/weed
[ -x "$WEED" ] || die "SeaweedFS is not installed: run make test (or tests/servers/install.sh s3)"
mkdir -p "$D/data"
cat >"$D/keys.json" <<'KEYS'
{"identities":[{"name":"alluvium","credentials":[{"accessKey":"alluvium","secretKey":"alluvium-secret"}],"actions":["Admin","Read","Write","List","Tagging"]}]}
KEYS
# Ready once the S3 port answers and the bucket could be made; a bucket is a folder of the filer.
ready_s3() {
  python3 - "$PORT" $((PORT + 3)) <<'PY'
import http.client, socket, sys
socket.create_connection(("127.0.0.1", int(sys.argv[1])), 1).close()
def status(method):
    filer = http.client.HTTPConnection("127.0.0.1", int(sys.argv[2]), timeout=5)
    filer.request(method, "/buckets/lake/")
    return filer.getresponse().status
sys.exit(0 if status("GET") == 200 or status("POST") == 201 else 1)
PY
}
READY=ready_s3
keep "$D" "$D/server.pid" "$D/error.log" "$WEED" server -ip=127.0.0.1 -ip.bind=127.0.0.1 -dir="$D/data" -s3 -s3.port="$PORT" -s3.config="$D/keys.json" \
  -master.port=$((PORT + 1)) -volume.port=$((PORT + 2)) -filer.port=$((PORT + 3)) -s3.port.grpc=$((PORT + 4)) \
  -master.port.grpc=$((PORT + 5)) -volume.port.grpc=$((PORT + 6)) -filer.port.grpc=$((PORT + 7)) -s3.port.iceberg=0 -s3.port.lance=0 \
  -master.telemetry=false -metricsPort=0 -volume.max=20 -master.volumeSizeLimitMB=64 -master.volumePreallocate=false
