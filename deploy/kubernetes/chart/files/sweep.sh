#!/bin/sh
# Removes the directories of pods that are gone, once they have been empty for DAYS days, and files that are no rings and
# as old. The sidecar removes rings. A younger empty directory may be that of a pod that has not begun to train.
#
#   DIRECTORY, DAYS
#   ONCE   look once, instead of every hour
set -eu
trap 'exit 0' TERM INT
while :; do
    find "$DIRECTORY" -mindepth 3 -maxdepth 3 -type f ! -name '*.ring' -mtime "+$((DAYS - 1))" -delete || true
    # Pods before namespaces. rmdir refuses what is not empty any more, and the next round comes.
    for depth in 2 1; do
        find "$DIRECTORY" -mindepth $depth -maxdepth $depth -type d -empty -mtime "+$((DAYS - 1))" \
            -exec rmdir --ignore-fail-on-non-empty {} + || true
    done
    [ -z "${ONCE:-}" ] || exit 0
    sleep 3600 &
    wait $!
done
