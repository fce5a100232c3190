#!/usr/bin/env bash
# Test the wheel of the last `make wheel` in a virtual environment of every Python from 3.9 on that this machine has.
# Run a job, PyTorch, ddpctl, a program in C and two nodes, and check that `pip uninstall` leaves no file. The test
# needs neither a build folder nor a compiler (without one, the C program is skipped). So scripts/package/check.sh
# also runs it in bare systems.
# shellcheck source=tests/shell/tap.sh disable=SC2317  # `check` calls the functions
. "$(dirname "$0")/tap.sh"

wheel=$(echo "$BUILD"/dist/ddprun-*-manylinux_*_"$(uname -m)".whl)
if [ ! -e "$wheel" ]; then
    skip "the wheel in virtual environments" "there is none; make wheel"
    finish
fi
if [ "$BUILD/ddprun" -nt "$wheel" ]; then
    skip "the wheel in virtual environments" "$BUILD/ddprun is newer; make wheel"
    finish
fi
wheel=$(realpath "$wheel")
path=$PATH
unset PYTHONPATH

# Print the paths of the oldest and the newest interpreter, and of those of this system. The others belong to pyenv.
pythons() {
    local python
    for python in /usr/bin/python3.* /usr/local/bin/python3.* "${PYENV_ROOT:-$HOME/.pyenv}"/versions/*/bin/python3; do
        [[ $python != *-* && -x $python ]] || continue
        "$python" -c 'import os, sys, ensurepip
if sys.version_info >= (3, 9): print("%d.%d.%d" % sys.version_info[:3], os.path.realpath(sys.argv[1]))' "$python" 2>/dev/null
    done | sort -uV | awk '$2 ~ "^/usr/" { print $2; next } { other[n++] = $2 }
        END { if (n > 0) print other[0]; if (n > 1) print other[n - 1] }'
}

cat >"$tmp/sum.py" <<'PYTHON'
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
print("rank", dist.get_rank(), "sum", int(total))
dist.destroy_process_group()
PYTHON

files() {
    (cd "$venv" && find . \( -type f -o -type l \) ! -path '*/__pycache__/*' | sort)
}

now() {
    python3 -c 'import time; print(time.monotonic())'
}

# lines_are OUT LINE... -- succeeds if OUT has exactly these lines, in any order.
lines_are() {
    local out=$1
    shift
    sort "$out" | diff - <(printf '%s\n' "$@" | sort)
}

# Install the wheel and run a first job. The duration is printed, but not checked.
installs() {
    local start end
    start=$(now)
    "$venv/bin/pip" install -q --no-index --disable-pip-version-check "$wheel" || return 1
    # shellcheck disable=SC2016  # the worker expands it
    "$venv/bin/ddprun" --nproc_per_node=4 sh -c 'echo $RANK of $WORLD_SIZE' >"$out" || return 1
    end=$(now)
    lines_are "$out" '[0] 0 of 4' '[1] 1 of 4' '[2] 2 of 4' '[3] 3 of 4' || return 1
    python3 - "$venv/bin/ddprun" "$start" "$end" >"$venv/times" <<'PYTHON'
import subprocess, sys, time

ddprun, start, end = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])

def run():
    before = time.monotonic()
    subprocess.run([ddprun, "--nproc_per_node=1", "true"], check=True, stderr=subprocess.DEVNULL)
    return time.monotonic() - before

best = min(run() for _ in range(5))
print(f"{end - start:.1f} s from pip install to the end of the first job, {1000 * best:.0f} ms for a job of one worker")
PYTHON
}

# Query a job with ddpctl. Its workers wait until ddpctl has listed them.
shows_status() {
    local job tries=0 rc=0
    # shellcheck disable=SC2016  # the worker expands it
    "$venv/bin/ddprun" --nproc_per_node=2 --rdzv_id="wheel$$" sh -c 'until [ -e "$0" ]; do sleep 0.05; done' "$venv/go" 2>"$out.job" &
    job=$!
    until "$venv/bin/ddpctl" --job "wheel$$" status >"$out" 2>&1 && grep -q '^ *1 ' "$out"; do
        if [ $((tries += 1)) -gt 600 ] || ! kill -0 "$job" 2>/dev/null; then break; fi
        sleep 0.05
    done
    touch "$venv/go"
    wait "$job" || rc=$?
    cat "$out" "$out.job"
    grep -q '^ *1 ' "$out" && return "$rc"
}

runs_torch() {
    "$venv/bin/ddprun" --nproc_per_node=2 "$tmp/sum.py" >"$out" && lines_are "$out" '[0] rank 0 sum 2' '[1] rank 1 sum 2'
}

# Compile and run the worker of the README with the libddp of the wheel.
runs_c() {
    awk '/^```c$/ { on = 1; next } /^```$/ { on = 0 } on' README.md >"$venv/worker.c"
    # shellcheck disable=SC2046  # pkg-config prints words
    ${CC:-gcc} -Wall -Wextra -Werror "$venv/worker.c" -o "$venv/worker" \
        $(PKG_CONFIG_PATH=$venv/lib/pkgconfig pkg-config --cflags --libs ddp) &&
        "$venv/bin/ddprun" --nproc_per_node=2 "$venv/worker" >"$out" &&
        lines_are "$out" '[0] rank 0: 2 ranks' '[1] rank 1: 2 ranks' && rm "$venv/worker" "$venv/worker.c"
}

# Make two hosts: namespaces that a virtual cable joins.
make_hosts() {
    ip netns add "$host.0" && ip netns add "$host.1" &&
        ip link add eth0 netns "$host.0" type veth peer name eth0 netns "$host.1" || return 1
    for i in 0 1; do
        ip -n "$host.$i" link set lo up && ip -n "$host.$i" addr add "10.77.0.$((i + 1))/24" dev eth0 &&
            ip -n "$host.$i" link set eth0 up || return 1
    done
}

remove_hosts() {
    ip netns del "$host.0" 2>/dev/null
    ip netns del "$host.1" 2>/dev/null
}

runs_nodes() {
    local i rc=0 node=()
    rm -f "$out.key" && "$venv/bin/ddprun" --make_secret "$out.key" || return
    for i in 0 1; do
        # shellcheck disable=SC2016  # the worker expands it
        ip netns exec "$host.$i" "$venv/bin/ddprun" --nnodes=2 --node_rank="$i" --master_addr=10.77.0.1 --nproc_per_node=2 \
            --secret_file="$out.key" sh -c 'echo $RANK of $WORLD_SIZE' >"$out.$i" 2>"$out.$i.err" &
        node+=($!)
    done
    for i in 0 1; do
        wait "${node[i]}" || rc=$?
    done
    cat "$out".[01].err
    cat "$out".[01] >"$out"
    [ "$rc" -eq 0 ] && lines_are "$out" '[0] 0 of 4' '[1] 1 of 4' '[2] 2 of 4' '[3] 3 of 4'
}

# Run --ship to two hosts that have only the C library. Their shell hides the libraries that a distribution's ddprun
# needs.
runs_shipped() {
    cat >"$tmp/shell" <<'SHELL'
#!/bin/sh
shift
exec unshare -m sh -c "for l in /lib/*/lib*.so.*; do
    case \$l in */libcjson.so.* | */libuv.so.* | */libsodium.so.*) mount --bind /dev/null \"\$l\" || exit ;; esac
done
$*"
SHELL
    chmod 755 "$tmp/shell"
    # shellcheck disable=SC2016  # the worker expands it
    "$venv/bin/ddprun" --hosts=a,b --remote_shell="$tmp/shell" --ship sh -c 'echo $RANK of $WORLD_SIZE' >"$out" &&
        lines_are "$out" '[a:0] 0 of 2' '[b:1] 1 of 2'
}

uninstalls() {
    "$venv/bin/pip" uninstall -q -y ddprun && files | diff "$venv.before" -
}

# Run all checks with one Python, and print their results.
with_python() {
    local name
    name="Python $("$1" -c 'import platform; print(platform.python_version())') ($1)"
    venv=$tmp/$2 out=$tmp/$2.out
    "$1" -m venv --system-site-packages "$venv" && touch "$venv/times" "$venv/go" || return 1
    rm "$venv/go"
    files >"$venv.before"
    export VIRTUAL_ENV=$venv PATH=$venv/bin:$path # like venv/bin/activate
    check "$name: installs and runs a job of 4 workers" installs
    echo "# $name: $(cat "$venv/times")"
    check "$name: ddpctl status shows a job" shows_status
    rm -f "$venv/go"
    if "$venv/bin/python" -c 'import torch' 2>/dev/null; then
        check "$name: a PyTorch script reduces" runs_torch
    else
        skip "$name: a PyTorch script reduces" "torch is not installed"
    fi
    if [ "$2" != 1 ]; then
        :
    elif ! command -v "${CC:-gcc}" >/dev/null || ! command -v pkg-config >/dev/null; then
        skip "a program in C" "there is no compiler or no pkg-config"
    else
        check "a program in C" runs_c
    fi
    host=ddp-wheel-$$
    if [ "$2" != 1 ]; then
        :
    elif ! make_hosts 2>"$out"; then
        skip "two nodes" "no namespaces can be made: $(tail -n 1 "$out")"
    else
        check "two nodes" runs_nodes
    fi
    [ "$2" != 1 ] || remove_hosts
    if [ "$2" != 1 ]; then
        :
    elif ! unshare -m true 2>"$out"; then
        skip "a shipped program" "no namespaces can be made: $(tail -n 1 "$out")"
    else
        check "a shipped program needs only the C library" runs_shipped
    fi
    check "$name: uninstall leaves no file" uninstalls
}

n=0
while IFS= read -r python; do
    n=$((n + 1))
    with_python "$python" "$n"
done < <(pythons)
[ $n -gt 0 ] || skip "the wheel in virtual environments" "there is no Python from 3.9 on with ensurepip (python3-venv)"
finish
