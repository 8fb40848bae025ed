#!/bin/sh
# Prepares the ring directory of a node. Run again at will: what is right already stays.
#
#   DIRECTORY      as this container sees it
#   HOW            tmpfs: mount one there; directory: make do with what it is on
#   SIZE, INODES   of the tmpfs
#   OWNER, GROUP   numbers, the sidecar's
#   CONTEXT        SELinux context of all that is in it, or nothing
#
# Mode 2773. The kubelet makes DIRECTORY/NAMESPACE/POD for each training pod, as root, and gives it the mode of DIRECTORY:
#   2 (setgid)  rings belong to the sidecar's group, which may read them (they are 0640)
#   77          the sidecar finds rings in it, though it is root's, and removes dead ones: hence not sticky either
#   3           any user of the pod may create rings, and not list them
# A pod sees its own directory only, so that nobody shares one with strangers.
set -eu
say() { echo "prepare: $*" >&2; }

if [ -L "$DIRECTORY" ]; then
    say "$DIRECTORY is a symbolic link: that is not ours"
    exit 1
fi
mkdir -p "$DIRECTORY"
if [ "$HOW" = tmpfs ]; then
    limits="size=$SIZE,nr_inodes=$INODES"
    if mountpoint -q "$DIRECTORY"; then
        [ "$(stat -f -c %T "$DIRECTORY")" = tmpfs ] || { say "something that is no tmpfs is mounted on $DIRECTORY"; exit 1; }
        mount -o "remount,$limits" "$DIRECTORY" || say "holds more than $limits by now: the limits stay as they were"
    else
        context=${CONTEXT:+,context=\"$CONTEXT\"}
        mount -t tmpfs -o "$limits,nosuid,nodev,noexec$context" straggler "$DIRECTORY"
    fi
elif [ -n "$CONTEXT" ]; then
    chcon "$CONTEXT" "$DIRECTORY"
fi
chown "$OWNER:$GROUP" "$DIRECTORY"
chmod 2773 "$DIRECTORY"
say "$DIRECTORY is ready: $(stat -c '%a %u:%g' "$DIRECTORY") on $(stat -f -c %T "$DIRECTORY")"
