#!/bin/bash
# All that a change for GPUs needs, in about six minutes on a machine with one: bash bench/gpu_check.sh FOLDER
# The CUDA tests (in five processes), the losses of 200 steps by each kind of pass, the server's table, and the first
# minute of a training; results go to FOLDER.
# Packages that the machine lacks are taken from the wheels in build/wheels, and Multi30k from build/corpora.
out=$(realpath "$1"); packages=$(mktemp -d); parts=$(mktemp -d)
for wheel in build/wheels/*.whl; do python3 -m zipfile -e "$wheel" "$packages"; done
export PYTHONPATH=src:$packages PYTHONUNBUFFERED=1

files="tests/unit/test_cuda.py tests/unit/test_cuda_decoding.py"
test="timeout 110 python3 -m pytest -q -p no:cacheprovider"
python3 -m pytest -q -p no:cacheprovider --collect-only $files | grep :: | split -n r/5 - "$parts/"
for part in "$parts"/*; do
    xargs -d '\n' $test < "$part" > "$out/cuda-$(basename "$part").txt" 2>&1 &
done
wait
tail -qn 3 "$out"/cuda-*.txt
echo "CUDA tests: until $SECONDS s"

timeout 90 python3 -m bench.gpu losses --sizes base --out "$out/losses.json" 2>&1 | tail -n 3
echo "losses: until $SECONDS s"

timeout 150 python3 -m bench.gpu_serve --only 0 1 2 --out "$out/serve.json" > "$out/serve.txt" 2>&1
cut -c 1-300 "$out/serve.txt" | tail -n 12
echo "server: until $SECONDS s"

minute="python3 -m bench.gpu_first_minute --name after --limits 36 36 --out $out/first_minute.json"
timeout 90 $minute --corpora "short pairs" 2>&1 | tee "$out/first_minute.txt"
echo "first minute: until $SECONDS s"
if [ "$SECONDS" -lt 350 ]; then
    timeout 80 $minute --corpora Multi30k 2>&1 | tee -a "$out/first_minute.txt"
fi
