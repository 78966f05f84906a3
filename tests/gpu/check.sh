#!/bin/sh
# Checks training and decoding on one GPU, in one call of under six minutes and without a network:
#
#     sh tests/gpu/check.sh [--out FILE.json]
#     sh tests/gpu/check.sh --device cpu --small      # the same program where there is no GPU, in two minutes
#
# PYTHON=... chooses the interpreter; otherwise it is .venv/bin/python, or python3 where there is no .venv.
set -eu
cd "$(dirname "$0")/../.."
if [ -z "${PYTHON:-}" ]; then
    if [ -x .venv/bin/python ]; then PYTHON=.venv/bin/python; else PYTHON=python3; fi
fi
PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}" exec "$PYTHON" tests/gpu/check.py "$@"
