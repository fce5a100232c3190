#!/usr/bin/env bash
# Run every command that README.md and docs/ show. Each must print lines of the shape that the page shows. If a
# command cannot run here, this file names the test that runs it, or the reason why no test does.
# shellcheck source=tests/shell/tap.sh disable=SC2317,SC2016,SC2015,SC2034,SC2153  # `check` calls the functions; patterns are text of pages
. "$(dirname "$0")/tap.sh"
# shellcheck source=tests/shell/pages.sh
. "$(dirname "$0")/pages.sh"

build=$(realpath "$BUILD")
here=$tmp/here
data=$PWD/tests/data
modules=$PWD/launcher/python
mkdir "$here" && ln -s "$build" "$here/build" && ln -s "$PWD/tests" "$here/tests"
export PATH=$build:$PATH HOME=$here XDG_RUNTIME_DIR=$here/run
mkdir -m 700 "$here/run"
printf '#!/bin/sh\necho "rank $RANK of $WORLD_SIZE: $*"\n' >"$here/train"
printf 'import os\nprint("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"])\n' >"$here/train.py"
chmod +x "$here/train"

# runs PAGE LINE COMMAND -- runs the command in the folder of a user, with a time limit.
runs() {
    (cd "$here" && timeout 100 bash -c "$3") >"$tmp/out" 2>&1 || { echo "$1:$2: exit $? of: $3"; cat "$tmp/out"; return 1; }
    shows "$1" "$2" "$tmp/out"
}

# plans_under TITLE ENVIRONMENT OPTIONS -- succeeds if ddprun detects the scheduler by its recorded variables. ddprun
# only explains the plan, because the other nodes do not exist.
plans_under() {
    local words=()
    mapfile -t words < <(grep -v '^#' "$data/environments/$2.env" | sed "s|^PBS_NODEFILE=.*|PBS_NODEFILE=$here/hosts|")
    sed -n 's/^#file //p' "$data/environments/$2.env" >"$here/hosts"
    (cd "$here" && env "${words[@]}" bash -c "ddprun --explain $3") >"$tmp/out" 2>&1 && grep -q "^scheduler  *$1:" "$tmp/out" || { cat "$tmp/out"; return 1; }
}

# Compare the shown plan word by word.
runs_under_slurm() {
    local row=slurm-one-task-per-node
    case $3 in
    *"--per_task"*) row=slurm-four-tasks-per-node ;;
    *"--nodes=2 --ntasks-per-node=1 --gpus-per-node=4"*) row=slurm-four-gpus-per-node ;;
    esac
    plans_under Slurm "$row" "${3#*ddprun}" && shows "$1" "$2" "$tmp/out" cat
}

# Run a command of contributors, which reads the sources.
checks_the_sources() {
    "$3" >"$tmp/out" 2>&1 && shows "$1" "$2" "$tmp/out"
}

# Set a variable of a page for the later commands of the page.
exports() {
    local SLURM_JOB_ID=7
    eval "$3"
}

# Run both nodes on this host: replace the page's address by loopback, and its port by a free port. Without GPUs, a
# node has one worker.
runs_two_nodes() {
    local command=${3//10.0.0.1/127.0.0.1} port size=2
    port=$(free_port)
    command="CUDA_VISIBLE_DEVICES= ${command/ddprun /ddprun --master_port=$port }"
    [[ ! $command =~ --nproc_per_node=([0-9]+) ]] || size=$((2 * BASH_REMATCH[1]))
    rm -rf "$here/logs"
    (cd "$here" && timeout 100 bash -c "$command" >"$tmp/node0" 2>&1) &
    (cd "$here" && timeout 100 bash -c "${command/--node_rank=0/--node_rank=1}") >"$tmp/node1" 2>&1 && wait $! &&
        grep -q "rank $((size - 1)) of $size" "$tmp/node1" || { cat "$tmp/node0" "$tmp/node1"; return 1; }
    [[ $command != *--events=* ]] || [ "$(cat "$here"/logs/*/events-*.jsonl | grep -c '"event":"worker_ended"')" -eq "$size" ]
}

# Replace ssh by a script that skips the options and the host, and runs the command here.
runs_on_hosts() {
    mkdir -p "$tmp/remote"
    printf '#!/bin/sh\nwhile [ "${1#-}" != "$1" ]; do [ "$1" != -o ] || shift; shift; done\nshift\nexec sh -c "$*"\n' >"$tmp/remote/ssh"
    chmod +x "$tmp/remote/ssh"
    (cd "$here" && PATH=$tmp/remote:$PATH timeout 100 bash -c "$3") >"$tmp/out" 2>&1 &&
        grep -q '^\[n1:15\] rank 15 of 16' "$tmp/out" || { cat "$tmp/out"; return 1; }
}

free_port() {
    perl -MIO::Socket::INET -e 'print IO::Socket::INET->new(LocalAddr => "127.0.0.1", Listen => 1)->sockport'
}

# Start a job that hangs in a barrier, for the commands that query a store. Tests that run at the same time have jobs
# of the same user, so ddpctl gets the address of this job.
start_hung_job() {
    port=$(free_port)
    (cd "$here" && exec ddprun --nproc_per_node=3 --master_port="$port" build/tests/prog/member only:2 sleep:300000 all barrier:loaded) >"$tmp/hung" 2>&1 &
    hung=$!
    local i
    for ((i = 0; i < 200; i++)); do
        (cd "$here" && ddpctl --addr "127.0.0.1:$port" barriers 2>/dev/null | grep -q '0-1') && return 0
        sleep 0.1
    done
    cat "$tmp/hung"
    return 1
}

# Remove the rows of a table, because they depend on the job.
without_rows() {
    grep -vE '^ *[0-9]+  ' | shape
}

asks_the_hung_job() {
    local command=${3//--addr 127.0.0.1:29500/}
    (cd "$here" && DDPRUN_STORE_ADDR=127.0.0.1:$port bash -c "$command") >"$tmp/out" 2>&1
    [ $? -le 1 ] && [ -s "$tmp/out" ] && ! grep -q '^ddpctl: error' "$tmp/out" || { cat "$tmp/out"; return 1; }
    shows "$1" "$2" "$tmp/out" without_rows
}

# Run a command that fails. Replace its port by a free port.
fails_as_shown() {
    local command=${3//29533/$(free_port)}
    [[ $command != *--nnodes=* ]] || command=${command/ddprun /ddprun --master_port=$(free_port) }
    (cd "$here" && PATH=$build:/usr/bin:$PATH timeout 100 bash -c "$command") >"$tmp/out" 2>&1 && { echo "exit 0"; return 1; }
    shows "$1" "$2" "$tmp/out"
}

# Start node 1, which stops itself. Then start node 0, which must report that node 1 is lost.
starts_lost_node() {
    lost_port=$(free_port)
    (cd "$here" && exec bash -c "exec ${3/ddprun /ddprun --master_port=$lost_port }") >"$tmp/node1" 2>&1 &
    lost=$!
}

loses_node() {
    (cd "$here" && timeout 100 bash -c "${3/ddprun /ddprun --master_port=$lost_port }") >"$tmp/out" 2>&1
    local code=$?
    kill -KILL "$lost"
    wait "$lost"
    [ "$code" = 125 ] || echo "exit $code"
    shows "$1" "$2" "$tmp/out" && [ "$code" = 125 ]
}

# Start the hung jobs of docs/hangs.md at the same time, because a job mostly waits for the next sample of its stacks.
# A stand-in replaces PyTorch. The slow rank is slower than on the page, because the host may be busy. Two jobs run
# until the end, because ddpctl queries them.
declare -A hangs
start_hangs() {
    local line command
    local -x PYTHON_EXEC=/usr/bin/python3 PYTHONPATH=$PWD/tests/data/hangs/site-packages PYTHONDONTWRITEBYTECODE=1
    local -x PATH=$PATH${DDP_PY_SPY:+:$DDP_PY_SPY} TMPDIR=$tmp SLOWER=400
    py-spy --version >/dev/null 2>&1 && [ -x "$PYTHON_EXEC" ] || without="there is no /usr/bin/python3, or no py-spy in PATH or \$DDP_PY_SPY"
    slow_port=$(free_port) stacks_port=$(free_port)
    while IFS=$'\t' read -r line command; do
        case $command in
        "export PET_"*) eval "$command" ;;
        *still_worker*) start_hang "$line" "$command" ;;
        *straggler) [ -n "$without" ] || { start_hang "$line" "${command/ddprun /ddprun --master_port=$slow_port }" && endless+=($!); } ;;
        *hangs/worker.py*) [ -n "$without" ] || start_hang "$line" "$command" ;;
        esac
    done < <(commands docs/hangs.md)
    [ -n "$without" ] || { start_hang stacks "ddprun --on_hang=report --master_port=$stacks_port tests/data/hangs/worker.py sleep" && endless+=($!); }
}

start_hang() {
    (cd "$here" && exec timeout 300 bash -c "exec $2") >"$tmp/hang-$1" 2>&1 &
    hangs[$1]=$!
}

# check_hang SENTENCE COMMAND... -- like check, for a job of start_hangs.
check_hang() {
    if [ -z "$without" ]; then check "$@"; else skip "$1" "$without"; fi
}

reports_hang() {
    wait "${hangs[$2]}"
    local code=$?
    [ "$code" = 125 ] || echo "exit $code"
    shows "$1" "$2" "$tmp/hang-$2" && [ "$code" = 125 ]
}

reports_slow_rank() {
    local i
    for ((i = 0; i < 1000; i++)); do
        ! grep -q 'RANK_SLOW' "$tmp/hang-$2" || break
        sleep 0.1
    done
    shows "$1" "$2" "$tmp/hang-$2"
}

# asks_at PORT PAGE LINE COMMAND -- repeats the request, because a store rejects it while it samples the stacks itself.
asks_at() {
    local port=$1 i
    shift
    for ((i = 0; i < 100; i++)); do
        ! asks_the_hung_job "$@" >"$tmp/asked" || return 0
        sleep 0.1
    done
    cat "$tmp/asked"
    return 1
}

# Make the flight records of a job: its rank 1 is killed while the other two ranks wait for rank 1.
reads_flight_records() {
    local at job i
    at=127.0.0.1:$(free_port)
    rm -rf "$here/logs"
    (cd "$here" && exec timeout 100 ddprun --nproc_per_node=3 --master_port="${at#*:}" --log_dir=logs build/tests/prog/still_worker stop 1) >"$tmp/job" 2>&1 &
    job=$!
    for ((i = 0; i < 200; i++)); do
        ddpctl --addr "$at" top >"$tmp/top" 2>/dev/null
        [ "$(grep -c 'all_reduce #' "$tmp/top")" -ne 2 ] || break
        sleep 0.1
    done
    kill -KILL "$(awk '$1 == 1 { print $3 }' "$tmp/top")"
    wait "$job"
    runs "$@" || { cat "$tmp/top" "$tmp/job"; return 1; }
}

# Copy real records of PyTorch to the names that --flight_recorder uses.
reads_torch_records() {
    local rank
    for rank in 0 1 2; do cp "$data/flight/gloo_rank_$rank" "$here/flight_torch_$rank"; done
    (cd "$here" && bash -c "$3") >"$tmp/out" 2>&1 && shows "$1" "$2" "$tmp/out" cat
}

# draws PAGE LINE COMMAND -- draws the events of the previous command.
draws() {
    runs "$@" && grep -q '</html>' "$here/job.html"
}

# Run a call of the Python module in a script, which defines the user's `function`.
calls_python() {
    printf 'import ddprun\ndef function(n):\n    return n\nif __name__ == "__main__":\n    print("result", %s)\n' "$3" >"$here/call.py"
    (cd "$here" && PYTHONPATH=$modules PYTHONDONTWRITEBYTECODE=1 timeout 100 python3 call.py) >"$tmp/out" 2>&1
    grep -qxE 'result (0|\[10, 10, 10, 10\])' "$tmp/out" || { cat "$tmp/out"; return 1; }
}

# tested_by REASON -- counts the command as seen, but skips it.
tested_by() {
    echo "ok $((count += 1)) - $what # SKIP skipped, because $1"
}

# Check the name of a wheel, of an optional dependency, or of our package or a dependency.
is_package() {
    local name=${1##* } version
    version=$(sed -En 's/^#define DDP_VERSION_(MAJOR|MINOR|PATCH) +//p' include/ddp/context.h | paste -sd.)
    name=${name//\'/}
    case $name in
    *.whl) [[ ${name##*/} == "ddprun-$version-py3-none-manylinux_2_17_x86_64.whl" ]] ;;
    *"["*"]") name=${name##*[} && grep -q "^${name%]} = " scripts/package/pyproject.toml ;;
    *) grep -q "^[a-z]* = .*\"$name\"" scripts/package/pyproject.toml ;;
    esac
}

is_target() {
    grep -q "^${1%% *}:" Makefile scripts/package/package.mk
}

# is_script SCRIPT ARGUMENT... -- succeeds if the script names each part that the command requests.
is_script() {
    local script=$1 word
    shift
    [ -x "$script" ] || return
    for word; do grep -qw -e "$word" "$script" || { echo "$script: no $word"; return 1; }; done
}

# has_options PROGRAM [SUBCOMMAND] OPTION... -- succeeds if the help of the program has each option.
has_options() {
    local words=() word
    while [[ $# -gt 0 && $1 != -* ]]; do words+=("$1") && shift; done
    "${words[@]}" --help >"$tmp/help" || return
    for word; do grep -qE -e "${word%%=*}([^a-z_-]|$)" "$tmp/help" || { echo "${words[*]}: no $word"; return 1; }; done
}

# Succeed if our sources or OpenBLAS read the variable.
is_variable() {
    grep -rqw -e "$1" launcher rendezvous worker Makefile || grep -qw -e "$1" /usr/lib/*/libopenblas.so.0
}

is_in_sources() {
    grep -rqF -e "$1" include launcher rendezvous worker
}

reads_hostfile() {
    echo "$1" >"$here/hosts" && ddprun --hostfile="$here/hosts" --dry_run true >"$tmp/out" && grep -e "--nproc_per_node=${1##*slots=} " "$tmp/out"
}

shown=0 without=
check "a job hangs in a barrier" start_hung_job
endless=("$hung")
check "the jobs of docs/hangs.md start" start_hangs
for page in README.md docs/*.md; do
    unset "${!PET_@}"
    # Read the list from descriptor 3, because a job reads stdin.
    while IFS=$'\t' read -r -u 3 line command; do
        what="$page:$line: $command" shown=$((shown + 1))
        needs_installation "$command" && { tested_by "shell/test_install.sh runs it as shown"; continue; }
        case $command in
        "sudo apt-get install "*) tested_by "shell/test_docs.sh compares its packages with scripts/packages.sh, which scripts/test.sh installs" ;;
        "make -j\$(nproc)" | "sudo make install") tested_by "scripts/test.sh builds with it, and shell/test_install.sh installs into a folder" ;;
        *"sh -c 'kill -STOP"*) check "$what" starts_lost_node "$page" "$line" "$command" ;;
        "ddprun --nnodes=2 "*"sh -c 'sleep"*) check "$what" loses_node "$page" "$line" "$command" ;;
        "ddprun explain "*) check "$what" runs "$page" "$line" "$command" ;;
        *straggler) check_hang "$what" reports_slow_rank "$page" "$line" "$command" ;;
        *hangs/worker.py*) check_hang "$what" reports_hang "$page" "$line" "$command" ;;
        *still_worker*) check "$what" reports_hang "$page" "$line" "$command" ;;
        "ddpctl stacks") check_hang "$what" asks_at "$stacks_port" "$page" "$line" "$command" ;;
        "ddpctl top") check_hang "$what" asks_at "$slow_port" "$page" "$line" "$command" ;;
        "ddprun python3 "* | "ddprun sh -c "* | "ddprun ./trian" | *--master_port=29533* | *=timeout=* | *tests/prog/member*)
            check "$what" fails_as_shown "$page" "$line" "$command"
            ;;
        "export "*) check "$what" exports "$page" "$line" "$command" ;;
        *"accelerate launch"*) tested_by "make frontends runs it with accelerate from PyPI, and shell/test_python.sh the same hook with a stub of torch" ;;
        "ddprun."*) check "$what" calls_python "$page" "$line" "$command" ;;
        "pip "*) check "$what: its package, which shell/test_wheel.sh installs" is_package "$command" ;;
        scripts/demo.sh* | scripts/test.sh*) tested_by ".ci/run and the demo step run it" ;;
        scripts/gpu_check.sh*) tested_by "shell/test_gpu_check.sh runs it" ;;
        scripts/layers.sh) check "$what" checks_the_sources "$page" "$line" "$command" ;;
        "make bench" | "make bench-docs" | "make probes") check "$what: only its target, because it takes long" grep -q "^${command#make }:" Makefile ;;
        *"-o job.html"*) check "$what" draws "$page" "$line" "$command" ;;
        "ddpctl flight flight_torch"*) check "$what" reads_torch_records "$page" "$line" "$command" ;;
        "ddpctl flight"*) check "$what" reads_flight_records "$page" "$line" "$command" ;;
        *"ddpctl "*) check "$what" asks_the_hung_job "$page" "$line" "$command" ;;
        "ddprun --make_secret"*) check "$what" runs "$page" "$line" "rm -f job.key; $command" ;;
        *"--hosts "*) check "$what" runs_on_hosts "$page" "$line" "$command" ;;
        srun*) check "$what" runs_under_slurm "$page" "$line" "$command" ;;
        *"--nnodes=2 --node_rank=0"*) check "$what" runs_two_nodes "$page" "$line" "$command" ;;
        *"--node_rank=1"*) tested_by "the command of node 0 starts it" ;;
        *"--nnodes=2:4"*) check "$what" runs "$page" "$line" "${command/ddprun /ddprun --dry_run }" ;;
        less*) check "$what" runs "$page" "$line" "head -1 ${command#less}" ;;
        ddprun* | build/*) check "$what" runs "$page" "$line" "$command" ;;
        *) check "$what" fails echo "no row of this file runs it" ;;
        esac
    done 3< <(commands "$page")
done

# A line number beyond the page: the output of a command in a sentence is not compared, because the block below it
# belongs to another job.
no_output=1000000

# Check commands in sentences and table cells. Capital letters and `...` stand for the user's words.
for page in README.md docs/*.md; do
    while IFS=$'\t' read -r -u 3 line command; do
        what="$page:$line: $command"
        while [[ $command =~ ^(sudo|exec|[A-Z_]+=[^\"\ ]*)\ (.*) ]]; do
            [[ ${BASH_REMATCH[1]} != *=* ]] || check "$what: the variable" is_variable "${BASH_REMATCH[1]%%=*}"
            command=${BASH_REMATCH[2]}
        done
        case $command in
        [A-Z]*=*) check "$what: the variable" is_variable "${command%%=*}" ;;
        "make "*) check "$what: its target" is_target "${command#make }" ;;
        scripts/*)
            # shellcheck disable=SC2086  # words
            check "$what: the script and its parts" is_script $command
            ;;
        "pip "*) check "$what: the package" is_package "$command" ;;
        "man "*) check "$what: the page" grep -q "/man/${command#man }[.][138]" Makefile ;;
        "train "*)
            # shellcheck disable=SC2086  # words
            check "$what: the options" has_options "$build/train" ${command#train }
            ;;
        "docker "* | "podman "* | "srun "*)
            command -v "${command%% *}" >/dev/null || { tested_by "${command%% *} is not installed"; continue; }
            printf 'ClusterName=here\nSlurmctldHost=localhost\n' >"$tmp/slurm.conf" # srun --help needs it
            # shellcheck disable=SC2086  # words
            check "$what: the options" has_options env SLURM_CONF="$tmp/slurm.conf" $command
            ;;
        "ulimit "*) check "$what" bash -c "$command" ;;
        "python -m torch."* | "torch.distributed."*) tested_by "shell/test_python.sh runs the module with a stub of torch" ;;
        "attempt 0 failed: "*) tested_by "e2e/test_ddprun_restart compares this line" ;;
        "n0 slots="*) check "$what: the line of a file" reads_hostfile "$command" ;;
        "options.device = "*) check "$what: the constant" is_in_sources "${command##* }" ;;
        "struct "* | "i64 "* | "u32 "* | "a refusal" | "every answer" | "its logs")
            check "$what: the name" is_in_sources "$command"
            ;;
        mpirun* | mpiexec*) tested_by "shell/test_mpirun.sh runs it" ;;
        pbsdsh*) check "$what: with the variables of a task" plans_under PBS pbs-task "--node_rank=1 --nproc_per_node=2 ./train" ;;
        blaunch*) check "$what: with the variables of a task" plans_under LSF lsf-task "--node_rank=1 --nproc_per_node=2 ./train" ;;
        systemd-run*) tested_by "it needs a user's systemd; e2e/test_ddprun_contain uses such a group" ;;
        ddp-rendezvous*) tested_by "e2e/test_rendezvous_daemon runs it" ;;
        "ddprun --detach" | "attach JOB" | "stop JOB") tested_by "e2e/test_detach runs it" ;;
        "ddprun ...") check "$what: the program" command -v ddprun ;;
        "ddpctl "*) check "$what" asks_the_hung_job "$page" $no_output "$command" ;;
        "ddprun "*) command=${command/CODE/124} && check "$what" runs "$page" $no_output "${command/DIR/shim-here}" ;;
        *) check "$what" fails echo "no row of this file checks it" ;;
        esac
    done 3< <(inline_commands "$page")
done

kill "${endless[@]}" 2>/dev/null
wait "${endless[@]}" 2>/dev/null

# Check that the picture of README.md shows a real run: a new run must have the same shape.
picture_is_a_run() {
    scripts/picture.sh "$tmp/new.svg" && diff <(grep '<text' docs/hang.svg | sed 's/<[^>]*>//g' | tr '\n' ' ' | shape) <(grep '<text' "$tmp/new.svg" | sed 's/<[^>]*>//g' | tr '\n' ' ' | shape)
}

sees_all_commands() {
    local all
    all=$(for page in README.md docs/*.md; do commands "$page"; done | wc -l)
    [ "$shown" = "$all" ] || { echo "$shown commands of $all"; return 1; }
}

# Print "PAGE:LINE:TEXT" of the first line of each block that has no command. The blocks of docs/architecture.md are
# drawings.
blocks_without_command() {
    local page
    for page in README.md docs/*.md; do
        [ "$page" = docs/architecture.md ] || awk -v page="$page" -v prompt="$prompt" 'function print_block() { if (text != "") print text; text = "" }
            /^```/ { code = !code } code { next }
            /^    / && NR > last + 1 { print_block(); if (!has_command) text = page ":" NR ":" $0 }
            /^    / { last = NR; if ($0 ~ prompt) { has_command = 1; text = "" } next }
            NF { print_block(); has_command = 0 } END { print_block() }' "$page"
    done
}

# in_golden_file PAGE LINE FILE -- succeeds if the strings of the test, which the test compares with the output of
# ddprun, contain each line of the block.
in_golden_file() {
    local line missing=0
    perl -0777 -pe 's/"\s*\n\s*"//g; s/\\n/\n/g' "$3" | shape >"$tmp/golden"
    while IFS= read -r line; do
        grep -qF -e "$line" "$tmp/golden" || { echo "$1:$2: no line like this in $3: $line"; missing=1; }
    done < <(output "$1" "$(($2 - 1))" | shape | sed 's/^ddprun: //')
    return "$missing"
}

# has_metrics PAGE LINE -- compares the members of a line of metrics. Commands of the page have made the data.
has_metrics() {
    (cd "$here" && build/train --data data --model mlp --limit_steps 2 --metrics metrics) >"$tmp/out" 2>&1 || { cat "$tmp/out"; return 1; }
    diff <(output "$1" "$(($2 - 1))" | tr -d ' \n' | shape) <(head -n 1 "$here/metrics" | tr -d ' \n' | shape)
}

# Compare each block without a command with what the product prints. A block of Python code has no output.
blocks_are_output() {
    local place text wrong=0
    while IFS=: read -r page line text; do
        case $text in
        *"(SIGKILL), "*) in_golden_file "$page" "$line" tests/unit/report/test_report.c || wrong=1 ;;
        *"waiting for node 0's store"*) in_golden_file "$page" "$line" tests/unit/net/test_dial_plan.c || wrong=1 ;;
        *'{"step":'*) has_metrics "$page" "$line" || wrong=1 ;;
        *" if step_is_saved "*) ;;
        *) echo "$page:$line: no command, and no row of this file compares this block" && wrong=1 ;;
        esac
    done < <(blocks_without_command)
    return "$wrong"
}

# Find commands without a prompt, because this file would not run them.
commands_have_prompts() {
    ! grep -nE '^    ([A-Z_]+=[^ ]+ |sudo )*(ddprun|ddpctl|ddp-[a-z]+|torchrun|accelerate|srun|sbatch|mpirun|mpiexec|make|export|pip|python3?|scripts/[^ ]+)( |$)' README.md docs/*.md
}

check "no command is left out" sees_all_commands
check "every command has a prompt" commands_have_prompts
check "blocks without a command are compared" blocks_are_output
check "docs/hang.svg shows what ddprun prints" picture_is_a_run
finish
