#!/bin/sh
# Makes a room of a namespace: what programs look for beside the libraries, as a kernel with RDMA would show it. Only the
# mount namespace in which it runs sees that. It stays for as long as its standard input.
#
# usage: home.sh DIRECTORY DEVICE=INTERFACE...
#
# UCX wants /dev/infiniband/uverbs0 to be a character device that it may write, and looks for the GIDs' types in sysfs; pyverbs
# asks sysfs for the device's network interface.
set -e
directory=$1
shift
mount -t tmpfs -o mode=755 tmpfs "$directory"

# Everything in /dev, and one directory more.
mkdir "$directory/dev"
mount --rbind /dev "$directory/dev"
mount -t tmpfs -o mode=755 tmpfs /dev
for file in "$directory"/dev/*; do
    ln -s "$file" /dev/
done
rm -f /dev/infiniband
mkdir /dev/infiniband

# The same with /sys/class.
mkdir "$directory/sys"
mount --rbind /sys "$directory/sys"
mount -t tmpfs -o mode=755 tmpfs /sys/class
for file in "$directory"/sys/class/*; do
    ln -s "$file" /sys/class/
done
rm -f /sys/class/infiniband

number=0
for pair; do
    ln -s ../null "/dev/infiniband/uverbs$number"
    port=/sys/class/infiniband/${pair%=*}/ports/1
    mkdir -p "$port/gid_attrs/types" "$port/gid_attrs/ndevs" "$port/../../device/net/${pair#*=}"
    for index in 0 1 2 3 4 5 6 7; do
        echo "RoCE v2" >"$port/gid_attrs/types/$index"
        echo "${pair#*=}" >"$port/gid_attrs/ndevs/$index"
    done
    number=$((number + 1))
done

echo ready
cat >/dev/null
