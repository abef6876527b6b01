# Sourced by the scripts of this folder: where everything lies, and how to say that something is missing.
CACHE=${ALLUVIUM_CACHE:-$HOME/.cache/alluvium}
MYSQL_ROOT=$CACHE/mysql-root
MYSQL_DATA=$CACHE/mysql-data
MARIADB_DATA=$CACHE/mariadb-data
# The password of `root` on every test server. They listen on 127.0.0.1 only and live as long as one test run.
ROOT_PASSWORD=alluvium
SERVER_USER=$(id -un)

say() { echo "servers: $*" >&2; }
die() { say "$*"; exit 1; }

# Options that every call of the private MySQL needs, for its own files are not where it was built for.
mysql_base() {
  echo --no-defaults "--user=$SERVER_USER" "--basedir=$MYSQL_ROOT/usr" "--lc-messages-dir=$MYSQL_ROOT/usr/share/mysql" \
    "--character-sets-dir=$MYSQL_ROOT/usr/share/mysql/charsets" "--plugin-dir=$MYSQL_ROOT/usr/lib/mysql/plugin"
}

# Becomes the server's keeper: starts "$@" in a session of its own, waits until the command $READY works, prints "ready",
# and then holds the server until standard input ends (the test process died) or the server ends by itself.
# With HELD unset the server is left running and only its process id is printed.
keep() {
  local directory=$1 pid_file=$2 log=$3 reader
  shift 3
  rm -f "$pid_file"
  setsid "$@" </dev/null >/dev/null 2>>"$log" &
  local server=$!
  if [ -n "${HELD:-}" ]; then
    exec 3<&0
    # A reader that sees the end of standard input is the only sign that cannot be missed when the parent is killed.
    ( cat <&3 >/dev/null; kill -9 "$server" 2>/dev/null; [ -z "${REMOVE:-}" ] || { sleep 0.2; rm -rf "$directory"; } ) &
    reader=$!
  fi
  for _ in $(seq 1 1200); do
    kill -0 "$server" 2>/dev/null || { tail -20 "$log" >&2; [ -z "${reader:-}" ] || kill "$reader" 2>/dev/null; die "the server ended at once, see $log"; }
    # shellcheck disable=SC2086
    if $READY >/dev/null 2>&1; then
      echo "$server" >"$pid_file"
      echo "ready $server"
      [ -n "${HELD:-}" ] || return 0
      exec 1>&-
      wait "$server" || true
      pkill -P "$reader" 2>/dev/null || true
      kill "$reader" 2>/dev/null || true
      return 0
    fi
    sleep 0.05
  done
  kill -9 "$server" 2>/dev/null || true
  die "the server did not start within 60 s, see $log"
}
