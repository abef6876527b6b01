#!/bin/bash
# spark.sh DIR PORT
# Starts Spark with Delta Lake as a Spark Connect server on 127.0.0.1:PORT, working in DIR, and prints "ready PID".
# It reads and writes local paths only. HELD and REMOVE as in mysql.sh. A client: $ALLUVIUM_CACHE/spark-venv/bin/python,
# SparkSession.builder.remote("sc://127.0.0.1:PORT").
set -euo pipefail
. "$(dirname "$0")/env.sh"
D=$1 PORT=$2
[ -e "$CACHE/spark-venv/complete" ] || die "Spark is not installed: run make test (or tests/servers/install.sh spark)"
mkdir -p "$D"
SITE=$(echo "$CACHE"/spark-venv/lib/python3*/site-packages)
SPARK_HOME=$SITE/pyspark
export SPARK_HOME
# The package's jar carries Delta Lake, but not the entry by which Spark finds its data source.
python3 - "$D/delta-services.jar" <<'PY'
import sys, zipfile
with zipfile.ZipFile(sys.argv[1], "w") as jar:
    jar.writestr("META-INF/services/org.apache.spark.sql.sources.DataSourceRegister", "org.apache.spark.sql.delta.sources.DeltaDataSource\n")
PY
ready_spark() { python3 -c 'import socket, sys; socket.create_connection(("127.0.0.1", int(sys.argv[1])), 1).close()' "$PORT"; }
READY=ready_spark
# A busy machine takes far longer than the 10 seconds of an idle one.
START_SECONDS_MAX=${START_SECONDS_MAX:-150}
cd "$D"
# A test run asks few and small questions: compiling less is worth more than running fast.
keep "$D" "$D/server.pid" "$D/error.log" "$SPARK_HOME/bin/spark-submit" --class org.apache.spark.sql.connect.service.SparkConnectServer \
  --master "local[2]" --driver-memory 1g --driver-class-path "$D/delta-services.jar:$(echo "$SITE"/jsoniq/jars/rumbledb-*.jar)" \
  --driver-java-options "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC" --conf spark.sql.codegen.wholeStage=false --conf spark.sql.codegen.factoryMode=NO_CODEGEN \
  --conf spark.connect.grpc.binding.port="$PORT" --conf spark.connect.grpc.binding.address=127.0.0.1 \
  --conf spark.driver.host=127.0.0.1 --conf spark.driver.bindAddress=127.0.0.1 --conf spark.ui.enabled=false \
  --conf spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension \
  --conf spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog \
  --conf spark.sql.shuffle.partitions=2 --conf spark.default.parallelism=2 --conf spark.databricks.delta.snapshotPartitions=1 \
  --conf spark.sql.session.timeZone=UTC --conf spark.sql.warehouse.dir="$D/warehouse" --conf spark.log.level=WARN \
  "$(echo "$SPARK_HOME"/jars/spark-connect_*.jar)"
