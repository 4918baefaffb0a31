#!/bin/sh
# All that an image of the tool has, in a directory: the program, the C library that it is linked with, a place where it
# unpacks the library that it carries, and a user.
#
#   packaging/image.sh PROGRAM DIRECTORY
set -eu
program=$1 root=$2
mkdir -p "$root/usr/bin" "$root/etc" "$root/cache"
cp "$program" "$root/usr/bin/roce"
ldd "$program" | grep -o '/[^ ]*' | while read -r file; do
    mkdir -p "$root$(dirname "$file")"
    cp -L "$file" "$root$file"
done
echo 'nonroot:x:65532:65532::/cache:/sbin/nologin' >"$root/etc/passwd"
chown 65532:65532 "$root/cache"
