#!/bin/sh
# python.sh PYTHON ROOT RESULTS SUITE: tests of the Python package, where it is installed. SUITE is python_torch, what
# is there for users of torch, JAX, DeepGEMM and DeepEP, or python: all other tests, and the examples. Layer tests.
python=$1 root=$2 results=$3 suite=$4
if ! reason=$(cd / && "$python" -c 'import finegemm, ml_dtypes, numpy, pytest' 2>&1); then
    echo "$python: $(printf '%s\n' "$reason" | tail -n 1)"
    exit 77
fi
build=${results%/results}
if [ -f "$build/tests/libfinegemm_mock_driver.so" ]; then
    export FINEGEMM_MOCK_DRIVER="$build/tests/libfinegemm_mock_driver.so"
fi
# Dozens of tests start interpreters that import torch: what its modules compile to is kept, beside the other results.
unset PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX="$build/pycache"
cd "$root" || exit 1
tests=python/tests
if [ "$suite" = python_torch ]; then
    export OMP_NUM_THREADS=1   # torch's threads would wait for each other, as the other suite runs beside
    set -- $tests/test_torch*.py $tests/test_jax.py $tests/test_transformers.py $tests/test_deep_*.py \
        $tests/conformance
else
    for example in examples/*.py examples/python/*.py; do "$python" "$example" || exit 1; done
    set -- --ignore-glob="*/test_torch*.py" --ignore=$tests/test_jax.py --ignore=$tests/test_transformers.py \
        --ignore-glob="*/test_deep_*.py" --ignore=$tests/conformance
fi
exec "$python" -m pytest -q -p no:cacheprovider --junitxml="$results/$suite.xml" "$@"
