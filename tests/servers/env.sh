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
  local directory=$1 pid_file=$2 log=$3 reader=
  shift 3
  rm -f "$pid_file" "$directory/closed"
  setsid "$@" </dev/null >/dev/null 2>>"$log" &
  local server=$!
  if [ -n "${HELD:-}" ]; then
    exec 3<&0
    # A reader that sees the end of standard input is the only sign that cannot be missed when the parent is killed.
    ( cat <&3 >/dev/null; touch "$directory/closed"; kill -9 "$server" 2>/dev/null ) &
    reader=$!
  fi
  local state=slow
  local give_up=$((SECONDS + ${START_SECONDS_MAX:-60}))
  while [ $SECONDS -lt $give_up ]; do
    kill -0 "$server" 2>/dev/null || { state=ended; break; }
    if $READY >/dev/null 2>&1; then state=ready; break; fi
    sleep 0.05
  done
  if [ $state = ready ]; then
    echo "$server" >"$pid_file"
    echo "ready $server"
    [ -n "${HELD:-}" ] || return 0
    exec 1>&-
    wait "$server" 2>/dev/null || true
  else
    kill -9 "$server" 2>/dev/null || true
    [ -e "$directory/closed" ] || tail -20 "$log" >&2
  fi
  [ -z "$reader" ] || { pkill -P "$reader"; kill "$reader"; wait "$reader"; } 2>/dev/null || true
  [ -z "${REMOVE:-}" ] || [ ! -e "$directory/closed" ] || rm -rf "$directory"
  case $state in
    ended) die "the server ended at once, see $log" ;;
    slow) die "the server did not start within ${START_SECONDS_MAX:-60} s, see $log" ;;
  esac
}
