#!/usr/bin/env bash
# The Python module ddprun and the hook that puts ddprun in torchrun's place, with every Python found: in a virtual environment as the
# wheel makes it, and a stub of torch. python_cases.py has the cases.
# shellcheck source=tests/shell/tap.sh disable=SC2317,SC2153,SC2154  # `check` calls the functions; tap.sh sets the rest
. "$(dirname "$0")/tap.sh"

here=$PWD
build=$(realpath "$BUILD")
cases=$here/tests/shell/python_cases.py
export PYTHONDONTWRITEBYTECODE=1
unset DDPRUN_AS_TORCHRUN PYTHON_EXEC

# environment PYTHON DIRECTORY: a virtual environment with what the wheel has.
environment() {
    "$1" -m venv --without-pip "$2" && site=$("$2/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))') &&
        cp -r "$here"/launcher/python/* "$here"/tests/data/torch_stub/* "$site" && ln -s "$build/ddprun" "$2/bin"
}

# cases_of CLASS PYTHON
cases_of() {
    (cd "$tmp" && "$2" "$cases" "$1")
}

# Processor time in turns, because the clock would measure other programs, too; a number for readers, no check.
interpreter_start() {
    "$1" - "$2" <<'END'
import os, resource, statistics, subprocess, sys
pth, times = sys.argv[1], ([], [])
def used():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
for i in range(100):
    hide = i % 2
    if hide:
        os.rename(pth, pth + ".hidden")
    before = used()
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    times[hide].append(used() - before)
    if hide:
        os.rename(pth + ".hidden", pth)
with_pth, without = map(statistics.median, times)
print(f"# processor time of an interpreter's start with ddprun.pth: {with_pth * 1000:.2f} ms, without {without * 1000:.2f} ms, "
      f"ratio {with_pth / without:.3f}")
END
}

types_are_strict() {
    mypy --strict --cache-dir="$tmp/mypy" launcher/python/ddprun launcher/python/_ddprun_torchrun.py
}

of_few_lines() {
    [ "$(wc -l <launcher/python/ddprun/__init__.py)" -le 200 ]
}

# One of each version; Debian's first.
pythons=() versions=' '
for python in /usr/bin/python3 "$(command -v python3)" "$HOME"/.pyenv/versions/3.*/bin/python3; do
    version=$("$python" -c 'import sys, venv; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || continue
    case $version in 3.[6-8]) continue ;; esac
    [[ $versions != *" $version "* ]] || continue
    versions+="$version "
    pythons+=("$python")
done

for python in "${pythons[@]}"; do
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    environment "$python" "$tmp/$version" || { check "a virtual environment of $python" false; continue; }
    DDP_CLOUDPICKLE=
    if "$python" -c 'import cloudpickle' 2>/dev/null; then
        DDP_CLOUDPICKLE=$tmp/cloudpickle-$version
        mkdir "$DDP_CLOUDPICKLE"
        cp -r "$("$python" -c 'import cloudpickle, os; print(os.path.dirname(cloudpickle.__file__))')" "$DDP_CLOUDPICKLE"
    fi
    export DDP_CLOUDPICKLE
    for class in Module Hook; do
        check "Python $version: $class" cases_of "$class" "$tmp/$version/bin/python"
    done
    [ -n "$DDP_CLOUDPICKLE" ] || skip "Python $version with cloudpickle" "$python has no cloudpickle"
done
if [ ${#pythons[@]} -eq 0 ]; then
    skip "the Python module" "there is no Python from 3.9 on"
else
    interpreter_start "$tmp/$version/bin/python" "$site/ddprun.pth"
fi
check "the module has at most 200 lines" of_few_lines
if command -v mypy >/dev/null; then check "mypy --strict" types_are_strict; else skip "mypy --strict" "mypy is not installed"; fi
finish
