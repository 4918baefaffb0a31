#!/bin/sh
# Process 1 of the guest: loads the modules, then serves commands on a virtio port.
#
# Not on the serial port: that is the console, where the kernel's messages would mix with the
# output; and QEMU's emulation of it loses a byte now and then when the guest is busy.
# The host writes one line "NUMBER SECONDS COMMAND"; the answer is the command's output and a line
# "<done NUMBER STATUS>". The network is set up by the host through such commands: only it knows the
# addresses.

mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mount -t tmpfs tmpfs /tmp
# for the semaphore of librdmacm's librspreload.so
mkdir /dev/shm
mount -t tmpfs tmpfs /dev/shm

for module in $(cat /modules/order); do
    insmod "/modules/$module" || echo "insmod $module failed"
done

serve() {
    echo "<ready>"
    # Busybox's `read` forgets a half-read line when a child ends meanwhile, so lines must come in
    # one piece. They do: up to 4096 bytes are in one buffer of the port.
    while IFS=' ' read -r number seconds command; do
        timeout -s KILL "$seconds" sh -c "$command" </dev/null 2>&1
        printf '\n<done %s %s>\n' "$number" $?
    done
}

# The ports appear some time after their driver, and their names have the number of a device in
# them. The second one is the agent's.
port=
until [ -c "$port" ]; do
    sleep 0.1
    port=$(echo /dev/vport*p1)
done

# The end of process 1 would be the end of the kernel.
while true; do
    serve <>"$port" >&0
done
