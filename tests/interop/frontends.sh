#!/usr/bin/env bash
# frontends.sh -- run unedited front ends of torchrun with two workers on Gloo, under torchrun and under ddprun, and
# compare the results. Each front end is installed from PyPI into one environment, build/frontends (6 GB, because
# PyTorch's wheel includes CUDA). If this takes more than five minutes, its check is skipped. PYTHON makes the
# environment. The outputs are in build/frontends/out.
# shellcheck source=tests/shell/tap.sh disable=SC2317,SC2153,SC2154  # `check` calls the functions; tap.sh sets the rest
. "$(dirname "$0")/../shell/tap.sh"

here=$PWD/tests/interop/frontends
place=$(realpath "$BUILD")/frontends
out=$place/out
mkdir -p "$out"
[ -x "$place/bin/pip" ] || "${PYTHON:-python3}" -m venv "$place" ||
    { echo "frontends.sh: no virtual environment: install python3-venv, or give another PYTHON=" >&2; exit 1; }
"$place/bin/pip" -q install uv || exit
# Put the files where `pip install ddprun` would put them.
site=$("$place/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
cp -r launcher/python/* "$site"
ln -sf "$(realpath "$BUILD/ddprun")" "$place/bin/ddprun"
export PATH=$place/bin:$PATH OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 PET_VERBOSE=1
unset DDPRUN_AS_TORCHRUN PYTHON_EXEC VIRTUAL_ENV PYTHONPATH

# installs PACKAGE... -- installs the packages within five minutes, or sets `reason`.
installs() {
    local began=$SECONDS
    timeout 300 uv pip install -q --python "$place/bin/python" "$@" >"$out/install" 2>&1 && echo "# $* installed in $((SECONDS - began)) s" && return
    reason="$* cannot be installed from PyPI in five minutes: $(tail -n 1 "$out/install")"
    return 1
}

# results FILE -- prints the lines `result ...` of FILE without ddprun's prefixes.
results() {
    sed -n 's/^.*result /result /p' "$1" | sort
}

# same NAME TORCHRUN... -- DDPRUN... -- succeeds if both commands print the same results, and at least one. Each has
# ten minutes.
same() {
    local name=$1 theirs=()
    shift
    while [ "$1" != -- ]; do
        theirs+=("$1")
        shift
    done
    shift
    (cd "$here" && timeout 600 "${theirs[@]}") >"$out/$name.torchrun" 2>&1 || { tail -n 30 "$out/$name.torchrun"; return 1; }
    (cd "$here" && timeout 600 "$@") >"$out/$name.ddprun" 2>&1 || { tail -n 30 "$out/$name.ddprun"; return 1; }
    # ddprun prints lines of its own, because PET_VERBOSE=1 sets --verbose.
    grep -q '^ddprun: ' "$out/$name.torchrun" && { echo "ddprun ran in place of torchrun"; return 1; }
    grep -q '^ddprun: ' "$out/$name.ddprun" || { echo "ddprun did not run"; return 1; }
    results "$out/$name.torchrun" >"$out/$name.expected"
    [ -s "$out/$name.expected" ] && diff "$out/$name.expected" <(results "$out/$name.ddprun")
}

# as_torchrun NAME COMMAND... -- compares the command without and with the hook.
as_torchrun() {
    same "$1" "${@:2}" -- env DDPRUN_AS_TORCHRUN=1 "${@:2}"
}

swift_result() {
    local folder=$out/swift$1
    rm -rf "$folder"
    NPROC_PER_NODE=2 DDPRUN_AS_TORCHRUN=$1 swift sft --model "$out/tiny/model" --model_type qwen2 --template qwen2_5 \
        --dataset "$out/tiny/data.jsonl" --tuner_type full --torch_dtype float32 --use_cpu true --num_train_epochs 1 \
        --per_device_train_batch_size 2 --gradient_accumulation_steps 1 --learning_rate 1e-2 --max_length 128 --logging_steps 1 --save_strategy no --seed 1 \
        --ddp_backend gloo --output_dir "$folder" && sed -n 's/.*"loss": \([^,]*\),.*/result \1/p' "$folder"/*/logging.jsonl
}

llama_factory_result() {
    cat >"$out/factory.yaml" <<END
model_name_or_path: $out/tiny/model
stage: sft
do_train: true
finetuning_type: full
dataset_dir: $out/tiny
dataset: tiny
template: qwen
cutoff_len: 128
output_dir: $out/factory$1
overwrite_output_dir: true
per_device_train_batch_size: 2
learning_rate: 1.0e-2
num_train_epochs: 1
logging_steps: 1
save_strategy: "no"
report_to: none
use_cpu: true
ddp_backend: gloo
END
    echo '{"tiny": {"file_name": "data.jsonl", "formatting": "sharegpt", "columns": {"messages": "messages"},
        "tags": {"role_tag": "role", "content_tag": "content", "user_tag": "user", "assistant_tag": "assistant"}}}' >"$out/tiny/dataset_info.json"
    FORCE_TORCHRUN=1 NPROC_PER_NODE=2 DDPRUN_AS_TORCHRUN=$1 llamafactory-cli train "$out/factory.yaml" &&
        sed -n 's/.*"loss": \([^,]*\),.*/result \1/p' "$out/factory$1/trainer_log.jsonl"
}

# uv_project -- runs `uv run` in a separate project, whose environment the workers must use.
uv_project() {
    rm -rf "$tmp/project" && mkdir -p "$tmp/project" "$tmp/bin"
    cp "$here/show_environment.py" "$tmp/project"
    ln -s "$place/bin/ddprun" "$place/bin/uv" "$tmp/bin"
    printf '[project]\nname = "project"\nversion = "0"\nrequires-python = ">=3.9"\n' >"$tmp/project/pyproject.toml"
    (cd "$tmp/project" && PATH=$tmp/bin:/usr/bin:/bin uv run --offline --python "$place/bin/python" \
        ddprun --nproc_per_node=2 show_environment.py) >"$out/uv" 2>&1
    cat "$out/uv"
    diff <(results "$out/uv") <(printf 'result %s %s 2\n' "$tmp/project/.venv" 0 "$tmp/project/.venv" 1)
}

if ! timeout 900 uv pip install -q --python "$place/bin/python" torch numpy >"$out/install" 2>&1; then
    skip "front ends of torchrun" "torch cannot be installed from PyPI: $(tail -n 1 "$out/install")"
    finish
fi
echo "# $("$place/bin/python" -c 'import sys, torch; print("torch", torch.__version__, "Python", sys.version.split()[0])')"
check "arguments of every namespace, with this torch's parser" "$place/bin/python" tests/shell/python_cases.py \
    Hook.test_namespaces_come_back_as_they_were
run_train=(torchrun --nproc_per_node=2 --rdzv_backend c10d --rdzv_endpoint=localhost:0 --local-ranks-filter 0 --role rank --tee 3
    -m titan.train --x 1)
rm -rf "$out/shim"
ddprun shim "$out/shim" 2>/dev/null >"$out/install"
check "run_train.sh of torchtitan, with ddprun shim" same shim "${run_train[@]}" -- env PATH="$out/shim:$PATH" "${run_train[@]}"
check "run_train.sh of torchtitan, with the hook" as_torchrun titan "${run_train[@]}"
check "python -m torch.distributed.run, which ms-swift uses" as_torchrun module python -m torch.distributed.run --nproc_per_node 2 \
    titan/train.py --x 1
check "python -m torch.distributed.launch" as_torchrun launch python -m torch.distributed.launch --nproc_per_node 2 titan/train.py --x 1
if installs accelerate; then
    check "accelerate launch" as_torchrun accelerate accelerate launch --multi_gpu --num_processes 2 --main_process_port 0 accelerated.py --x 1
else skip "accelerate launch" "$reason"; fi
if installs lightning; then
    check "Lightning" same lightning torchrun --nproc_per_node=2 lit.py -- ddprun --nproc_per_node=2 lit.py
else skip "Lightning" "$reason"; fi
if installs deepspeed setuptools; then
    check "DeepSpeed" same deepspeed torchrun --nproc_per_node=2 speed.py -- ddprun --nproc_per_node=2 speed.py
else skip "DeepSpeed" "$reason"; fi
export -f swift_result llama_factory_result
export out
if installs ms-swift && python "$here/tiny_model.py" "$out/tiny" >"$out/tiny.log" 2>&1; then
    check "ms-swift" same swift bash -c 'swift_result 0' -- bash -c 'swift_result 1'
elif installs llamafactory && python "$here/tiny_model.py" "$out/tiny" >"$out/tiny.log" 2>&1; then
    check "LLaMA-Factory" same factory bash -c 'llama_factory_result 0' -- bash -c 'llama_factory_result 1'
else skip "ms-swift or LLaMA-Factory" "$reason"; fi
check "uv run ddprun uses the project's environment" uv_project
finish
