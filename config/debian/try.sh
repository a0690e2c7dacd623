#!/bin/sh
# Installs a package in a fresh Debian (debootstrap, in a chroot), starts it as its unit would, talks to it, upgrades it to a later
# version, removes it. Needs root. The chroot has no systemd that runs: what the unit does is done by hand, as its user.
#
#   config/debian/try.sh PACKAGE FOLDER [SUITE] [MIRROR]
set -eu

package=$1 folder=$2 suite=${3:-bookworm} mirror=${4:-http://deb.debian.org/debian}
root=$folder/chroot

finish() {
    [ -z "${broker:-}" ] || { kill "$broker" && wait "$broker"; } 2> /dev/null || true
    for each in proc dev; do
        mountpoint --quiet "$root/$each" && umount "$root/$each"
    done
    return 0
}
trap finish EXIT

run() { chroot "$root" "$@"; }
say() { echo "==> try: $*"; }

if [ ! -x "$root/usr/bin/dpkg" ]; then
    say "debootstrap $suite"
    debootstrap --variant=minbase --include=adduser,ca-certificates,init-system-helpers,logrotate "$suite" "$root" "$mirror" \
        > "$folder/debootstrap.log" 2>&1 || { tail "$folder/debootstrap.log"; exit 1; }
fi
mountpoint --quiet "$root/proc" || mount -t proc proc "$root/proc"
mountpoint --quiet "$root/dev" || mount --bind /dev "$root/dev"

start() {
    data=$(run mktemp --directory /var/tmp/vmq-XXXXXX)
    run chown vmq:vmq "$data"
    # Not by `run`: the process that is stopped is to be the broker itself.
    chroot "$root" setpriv --reuid vmq --regid vmq --clear-groups /opt/vmq/bin/vmq start --config /etc/vmq/vmq.toml \
        --data-dir "${1:-$data}" --listen tcp://127.0.0.1:18883 > "$folder/ready" 2> "$folder/log" &
    broker=$!
    for _ in $(seq 300); do
        grep --quiet 'vmq ready' "$folder/ready" && return 0
        kill -0 "$broker" 2> /dev/null || break
        sleep 0.1
    done
    cat "$folder/log"
    return 1
}

stop() {
    kill -TERM "$broker"
    wait "$broker"
    broker=
}

cp "$package" "$root/vmq.deb"
say install
run apt-get -o Dpkg::Use-Pty=0 install --yes --quiet=2 --no-install-recommends /vmq.deb > "$folder/install.log" 2>&1 \
    || { tail -20 "$folder/install.log"; exit 1; }
run getent passwd vmq > /dev/null
run vmq --version
[ "$(run stat --format=%U:%G:%a /etc/vmq/passwd)" = root:vmq:640 ]
run /opt/vmq/bin/python -c 'import vmq; assert vmq.is_compiled()'
run vmq config check --config /etc/vmq/vmq.toml
run test -L /etc/systemd/system/multi-user.target.wants/vmq.service

say start
start
kept=$data
run vmq pub -L mqtt://127.0.0.1:18883 -t a -m kept -q 1 --retain
stop

say upgrade
later=$folder/later
rm -rf "$later"
dpkg-deb --raw-extract "$package" "$later"
sed -i 's/^Version: .*/&+later/' "$later/DEBIAN/control"
echo "# changed there" >> "$later/etc/vmq/vmq.toml"
dpkg-deb --root-owner-group -Znone --build "$later" "$root/later.deb" > /dev/null
rm -rf "$later"
echo "# changed here" >> "$root/etc/vmq/vmq.toml"
run dpkg --force-confdef --force-confold --install /later.deb > "$folder/upgrade.log" 2>&1
run dpkg-query --show --showformat='${Version}' vmq | grep --quiet later
grep --quiet "changed here" "$root/etc/vmq/vmq.toml"
[ "$(run stat --format=%U:%G:%a /etc/vmq/passwd)" = root:vmq:640 ]
start "$kept"
[ "$(run vmq sub -L mqtt://127.0.0.1:18883 -t a -C 1 -W 30)" = kept ]
stop

say remove
run dpkg --remove vmq > "$folder/remove.log" 2>&1
run test ! -e /opt/vmq/bin/vmq
run test -e /etc/vmq/vmq.toml
run dpkg --purge vmq >> "$folder/remove.log" 2>&1
run test ! -e /etc/vmq/vmq.toml
run test ! -e /var/lib/vmq
say "ok"
