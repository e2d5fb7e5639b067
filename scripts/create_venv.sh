#!/bin/sh
# Leave a working virtual environment, new or as it was, in $VENV, made by the first Python that is new enough.
# Called by `make setup`. PYTHON names the one to take; without it the usual names are tried in turn.
set -eu

new_enough='import sys; sys.exit(sys.version_info < (3, 11))'

# An environment whose Python still runs is kept, and brought to the lock's state by pip; unless pip was interrupted in it.
if [ ! -e "$VENV/unfinished" ] && "$VENV/bin/python" -c "$new_enough" 2>/dev/null && "$VENV/bin/python" -m pip --version >/dev/null 2>&1; then
    exit 0
fi

chosen=
for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11}; do
    if "$candidate" -c "$new_enough" 2>/dev/null; then
        chosen=$candidate
        break
    fi
done

if [ -z "$chosen" ]; then
    echo "setup: tidelog needs Python 3.11 or newer; ${PYTHON:-none of python3, python3.13, python3.12, python3.11} will not do." >&2
    echo "       Install one, or name it: make setup PYTHON=/path/to/python3.12" >&2
    exit 1
fi
if ! "$chosen" -c 'import ensurepip, venv' 2>/dev/null; then
    echo "setup: $chosen has no venv or ensurepip module." >&2
    echo "       On Debian and Ubuntu it comes with the package python3-venv." >&2
    exit 1
fi

echo "creating $VENV with $("$chosen" --version), then installing what ${LOCK:-requirements.lock} names"
"$chosen" -m venv --clear "$VENV"
