#!/bin/bash
# Stands in for ssh: runs a command on a "host", a network namespace of the host's address, with a
# name, processes and shared memory of its own.
while [[ "$1" == -* ]]; do shift; done
space="$PACELINE_HOSTS-${1##*.}"
shift
exec ip netns exec "$space" unshare --mount --uts --ipc --pid --fork --mount-proc --kill-child \
    bash -c "hostname $space; mount -t tmpfs tmpfs /dev/shm; $*"
