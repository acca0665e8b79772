#!/bin/sh
# python.sh PYTHON ROOT RESULTS: the tests and the examples of the Python package, where it is installed. Layer tests.
python=$1 root=$2 results=$3
if ! reason=$(cd / && "$python" -c 'import finegemm, ml_dtypes, numpy, pytest' 2>&1); then
    echo "$python: $(printf '%s\n' "$reason" | tail -n 1)"
    exit 77
fi
build=${results%/results/*}
if [ -f "$build/tests/libfinegemm_mock_driver.so" ]; then
    export FINEGEMM_MOCK_DRIVER="$build/tests/libfinegemm_mock_driver.so"
fi
for example in "$root"/examples/*.py "$root"/examples/python/*.py; do "$python" "$example" || exit 1; done
cd "$root" && exec "$python" -m pytest -q -p no:cacheprovider --junitxml="$results"
