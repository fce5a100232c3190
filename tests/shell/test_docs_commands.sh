#!/usr/bin/env bash
# Every command that README.md and docs/ show runs here, and prints lines of the shape that the page shows; or this file names the
# test that runs it, or the reason against a run.
# shellcheck source=tests/shell/tap.sh disable=SC2317,SC2016,SC2015,SC2153  # `check` calls the functions; the patterns are texts of pages
. "$(dirname "$0")/tap.sh"

build=$(realpath "$BUILD")
here=$tmp/here
data=$PWD/tests/data/environments
mkdir "$here" && ln -s "$build" "$here/build"
export PATH=$build:$PATH HOME=$here XDG_RUNTIME_DIR=$here/run
mkdir -m 700 "$here/run"
printf '#!/bin/sh\necho "rank $RANK of $WORLD_SIZE: $*"\n' >"$here/train"
printf 'import os\nprint("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"])\n' >"$here/train.py"
chmod +x "$here/train"

# shape: digits, times and job ids as one sign, blanks as one blank.
shape() {
    sed -E "s/'[0-9a-z]{8}'|job +[0-9a-z]{8}\\b/JOB/g; s/[0-9]+(\\.[0-9]+)?( ?(ms|s|min))?\\b/N/g; s/host [^ ,]+|\\([a-z0-9_-]+, pid/HOST/g; s/ +/ /g; s/^ //; s/ \$//"
}

# commands PAGE: "PROMPT<tab>LINE NUMBER<tab>COMMAND" of each; comments after two blanks are no part of it.
commands() {
    sed -nE '/^    (\$|node[01]\$) /{=;s/^    //;p}' "$1" | paste - - | sed -E 's/\t(\S+) (.*)$/\t\1\t\2/; s/  +# .*$//' |
        awk -F'\t' '{ print $2 "\t" $1 "\t" $3 }'
}

# output PAGE LINE: the lines that the page shows below the command, up to the next command or the end of the block.
output() {
    tail -n "+$(($2 + 1))" "$1" | awk '/^    (\$|node[01]\$) / || !/^    / { exit } $0 != "    ..." { print substr($0, 5) }'
}

# Every shown line is there in shape, in any order: workers print when they like.
shows() {
    local line missing=0
    shape <"$3" >"$tmp/shapes"
    while IFS= read -r line; do
        grep -qxF -e "$line" "$tmp/shapes" || { echo "$1:$2: no line like this: $line"; missing=1; }
    done < <(output "$1" "$2" | shape)
    [ "$missing" = 0 ] || { echo "the command printed:"; cat "$3"; return 1; }
}

# runs PAGE LINE COMMAND: in the folder of a user, with a time limit.
runs() {
    (cd "$here" && timeout 100 bash -c "$3") >"$tmp/out" 2>&1 || { echo "$1:$2: exit $? of: $3"; cat "$tmp/out"; return 1; }
    shows "$1" "$2" "$tmp/out"
}

# The scheduler's part is a recorded environment, and ddprun explains the plan instead of waiting for other nodes.
runs_under_slurm() {
    local row=slurm-one-task-per-node
    case $3 in *"--per_task"*) row=slurm-four-tasks-per-node ;; esac
    local words=()
    mapfile -t words < <(grep -v '^#' "$data/$row.env")
    (cd "$here" && env "${words[@]}" bash -c "ddprun --explain ${3#*ddprun}") >"$tmp/out" 2>&1 && grep -q '^scheduler  *Slurm' "$tmp/out" || { cat "$tmp/out"; return 1; }
}

# Both nodes on this host: the page's address becomes loopback, the port a free one.
runs_two_nodes() {
    local command=${3//10.0.0.1/127.0.0.1} port
    port=$(free_port)
    command="${command/ddprun /ddprun --master_port=$port }"
    (cd "$here" && timeout 100 bash -c "$command" >"$tmp/node0" 2>&1) &
    (cd "$here" && timeout 100 bash -c "${command/--node_rank=0/--node_rank=1}") >"$tmp/node1" 2>&1 && wait $! &&
        grep -q 'rank 15 of 16' "$tmp/node1" || { cat "$tmp/node0" "$tmp/node1"; return 1; }
}

# A script stands in for ssh: it skips the options and the host, and runs the command here.
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

# A job that hangs in a barrier, for the commands that ask a store. Tests that run beside this one have jobs of the same user, so
# its address is passed to ddpctl.
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

asks_the_hung_job() {
    local command=${3//--addr 127.0.0.1:29500/}
    (cd "$here" && DDPRUN_STORE_ADDR=127.0.0.1:$port bash -c "$command") >"$tmp/out" 2>&1
    [ $? -le 1 ] && [ -s "$tmp/out" ] && output "$1" "$2" | head -1 | shape >"$tmp/head" || { cat "$tmp/out"; return 1; }
    [ ! -s "$tmp/head" ] || shape <"$tmp/out" | grep -qxF -f "$tmp/head" || { cat "$tmp/out"; return 1; }
}

# The flight records of a job whose rank 1 is killed.
reads_flight_records() {
    (cd "$here" && rm -rf logs && ddprun --nproc_per_node=3 --log_dir=logs build/tests/prog/still_worker die 1) >"$tmp/job" 2>&1
    (cd "$here" && bash -c "$3") >"$tmp/out" 2>&1
    grep -q '^behind  ' "$tmp/out" && grep -q 'RANK  *HOST  *PID  *STEP' "$tmp/out" || { cat "$tmp/job" "$tmp/out"; return 1; }
}

draws_events() {
    (cd "$here" && rm -rf logs && ddprun --nproc_per_node=2 --events=logs/%j/events-%h.jsonl ./train) >"$tmp/job" 2>&1 && runs "$@" && grep -q '</html>' "$here/job.html"
}

# with REASON: counts the command as seen.
tested_by() {
    echo "ok $((count += 1)) - $what # SKIP skipped, because $1"
}

shown=0
check "a job of a user hangs in a barrier" start_hung_job
for page in README.md docs/*.md; do
    # On descriptor 3, because a job reads stdin.
    while IFS=$'\t' read -r -u 3 _ line command; do
        what="$page:$line: $command" shown=$((shown + 1))
        case $command in
        *apt-get* | "make -j" | *"make install"* | "export "*) tested_by "shell/test_install.sh and scripts/fresh-root.sh run it" ;;
        "pip install"*) tested_by "shell/test_wheel.sh runs it" ;;
        scripts/demo.sh* | scripts/test.sh*) tested_by ".ci/run and the demo step run it" ;;
        scripts/gpu_check.sh*) tested_by "shell/test_gpu_check.sh runs it" ;;
        "make bench" | "make bench-docs" | "make probes") check "$what: only its target, because it takes ten minutes" grep -q "^${command#make }:" Makefile ;;
        "cc "* | *"./worker" | *"./fit") tested_by "shell/test_install.sh runs it" ;;
        *"-o job.html"*) check "$what" draws_events "$page" "$line" "$command" ;;
        "ddpctl flight flight_torch"*) tested_by "e2e/test_ddpctl runs it on recorded files" ;;
        "ddpctl flight"*) check "$what" reads_flight_records "$page" "$line" "$command" ;;
        *"ddpctl "*) check "$what" asks_the_hung_job "$page" "$line" "$command" ;;
        "ddprun --make_secret"*) check "$what" runs "$page" "$line" "rm -f job.key; $command" ;;
        *"--hosts "*) check "$what" runs_on_hosts "$page" "$line" "$command" ;;
        srun*) check "$what" runs_under_slurm "$page" "$line" "$command" ;;
        *--events=*) tested_by "e2e/test_ddprun_events runs it" ;;
        *"--nnodes=2 --node_rank=0"*) check "$what" runs_two_nodes "$page" "$line" "$command" ;;
        *"--node_rank=1"*) tested_by "the command of node 0 starts it" ;;
        *"--nnodes=2:4"*) check "$what" runs "$page" "$line" "${command/ddprun /ddprun --dry_run }" ;;
        less*) check "$what" runs "$page" "$line" "head -1 ${command#less}" ;;
        ddprun* | build/*) check "$what" runs "$page" "$line" "$command" ;;
        *) check "$what" fails echo "no row of this file runs it" ;;
        esac
    done 3< <(commands "$page")
done
kill "$hung" 2>/dev/null
wait "$hung" 2>/dev/null

# The picture of README.md is a real run's: a new run has the same shape.
picture_is_a_run() {
    scripts/picture.sh "$tmp/new.svg" && diff <(grep '<text' docs/hang.svg | sed 's/<[^>]*>//g' | tr '\n' ' ' | shape) <(grep '<text' "$tmp/new.svg" | sed 's/<[^>]*>//g' | tr '\n' ' ' | shape)
}

sees_all_commands() {
    local all
    all=$(for page in README.md docs/*.md; do commands "$page"; done | wc -l)
    [ "$shown" = "$all" ] || { echo "$shown commands of $all"; return 1; }
}

check "no command is left out" sees_all_commands
check "docs/hang.svg shows what ddprun prints" picture_is_a_run
finish
