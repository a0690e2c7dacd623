#!/bin/sh
# Builds build/deb/vmq_VERSION_ARCHITECTURE.deb of a wheel: a virtual environment at /opt/vmq, with the libraries in the versions
# of requirements.lock, for Debian's own Python of the version that builds it.
#
#   config/debian/build.sh PYTHON WHEEL FOLDER
set -eu

python=$1 wheel=$2 folder=$3
here=$(dirname "$0")
root=$folder/root
name=python$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
version=$(basename "$wheel" | cut --delimiter=- --fields=2)

rm -rf "$root"
mkdir -p "$root/opt" "$root/DEBIAN" "$root/etc/vmq" "$root/etc/logrotate.d" "$root/usr/bin" "$root/usr/lib/systemd/system"

# The libraries. Files of Python are compiled with the path that they will have.
"$python" -m venv --without-pip "$root/opt/vmq"
"$python" -m pip --python "$root/opt/vmq/bin/python" install --quiet --disable-pip-version-check --no-compile \
    --constraint requirements.lock "$wheel[streams]"
"$python" -m compileall -q -s "$root" -p / "$root/opt/vmq/lib" > /dev/null

# Nothing of this machine's paths stays in it.
rm -f "$root"/opt/vmq/bin/python* "$root"/opt/vmq/bin/activate* "$root"/opt/vmq/bin/Activate*
for each in python python3 "$name"; do
    ln -s "/usr/bin/$name" "$root/opt/vmq/bin/$each"
done
printf 'home = /usr/bin\ninclude-system-site-packages = false\n' > "$root/opt/vmq/pyvenv.cfg"
for each in "$root"/opt/vmq/bin/*; do
    [ -L "$each" ] || sed -i '1s|^#!.*|#!/opt/vmq/bin/python|' "$each"
done
find "$root/opt/vmq" -name direct_url.json -delete

ln -s /opt/vmq/bin/vmq "$root/usr/bin/vmq"
install -m 0644 "$here/../vmq.service" "$root/usr/lib/systemd/system/vmq.service"
install -m 0644 "$here/../vmq.toml" "$here/../acl" "$here/../passwd" "$root/etc/vmq/"
install -m 0644 "$here/../vmq.logrotate" "$root/etc/logrotate.d/vmq"

install -m 0644 "$here/conffiles" "$root/DEBIAN/conffiles"
install -m 0755 "$here/postinst" "$here/prerm" "$here/postrm" "$root/DEBIAN/"
sed -e "s/@VERSION@/$version/" \
    -e "s/@ARCHITECTURE@/$(dpkg --print-architecture)/" \
    -e "s/@PYTHON@/$name/" \
    -e "s/@LIBC@/$(getconf GNU_LIBC_VERSION | cut --delimiter=' ' --fields=2)/" \
    -e "s/@SIZE@/$(du --summarize --block-size=1024 "$root" | cut --fields=1)/" \
    "$here/control" > "$root/DEBIAN/control"
# Of what is mostly machine code xz makes a tenth less, in ten times the time.
dpkg-deb --root-owner-group -Zgzip --build "$root" "$folder" > /dev/null
rm -rf "$root"
ls "$folder"/vmq_*.deb
