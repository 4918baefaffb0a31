#!/bin/sh
# Downloads the tool of a release, compares its sum, and puts it where this user's programs are.
#
#   ROCE_VERSION     which version
#   ROCE_DIRECTORY   where the tool goes, instead of ~/.local/bin
#   ROCE_RELEASES    where the packages of the version are
set -eu
version=${ROCE_VERSION:-0.1.0}
directory=${ROCE_DIRECTORY:-$HOME/.local/bin}
releases=${ROCE_RELEASES:-https://github.com/roce-rs/roce/releases/download/v$version}
case $(uname -sm) in
"Linux x86_64" | "Linux aarch64") ;;
*) echo "roce: there is nothing for $(uname -sm): Linux on x86_64 or aarch64 only" >&2 && exit 1 ;;
esac

archive=roce-$version-$(uname -m)-linux
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
for file in "$archive.tar.gz" SHA256SUMS; do
    curl --fail --silent --show-error --location --output "$scratch/$file" "$releases/$file"
done
cd "$scratch"
grep " $archive.tar.gz\$" SHA256SUMS >sum || { echo "roce: $releases/SHA256SUMS has no $archive.tar.gz" >&2 && exit 1; }
sha256sum --check --quiet sum
tar -xzf "$archive.tar.gz"
mkdir -p "$directory"
mv "$archive/roce" "$directory/roce.new"
mv "$directory/roce.new" "$directory/roce"
echo "$directory/roce"
