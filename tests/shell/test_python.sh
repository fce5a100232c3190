#!/usr/bin/env bash
# Test the Python module ddprun, and the hook that runs ddprun in place of torchrun, with several Pythons. Each has a
# virtual environment like that of the wheel, and a stub of torch. python_cases.py has the cases.
# shellcheck source=tests/shell/tap.sh disable=SC2317,SC2153,SC2154  # `check` calls the functions; tap.sh sets the rest
. "$(dirname "$0")/tap.sh"

here=$PWD
build=$(realpath "$BUILD")
cases=$here/tests/shell/python_cases.py
export PYTHONDONTWRITEBYTECODE=1
unset DDPRUN_AS_TORCHRUN PYTHON_EXEC

# environment PYTHON DIRECTORY -- makes a virtual environment with the files of the wheel.
environment() {
    "$1" -m venv --without-pip "$2" && site=$("$2/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))') &&
        cp -r "$here"/launcher/python/* "$here"/tests/data/torch_stub/* "$site" && ln -s "$build/ddprun" "$2/bin"
}

# cases_of CLASS PYTHON -- runs the cases of the class.
cases_of() {
    (cd "$tmp" && "$2" "$cases" "$1")
}

types_are_strict() {
    mypy --strict --cache-dir="$tmp/mypy" launcher/python/ddprun launcher/python/_ddprun_torchrun.py
}

of_few_lines() {
    [ "$(wc -l <launcher/python/ddprun/__init__.py)" -le 200 ]
}

# Test Debian's Python. Of the others from 3.9 on, test the oldest and the newest.
version_of() {
    "$1" -c 'import sys, venv
if sys.version_info >= (3, 9): print("%d.%d" % sys.version_info[:2])' 2>/dev/null
}
debian=/usr/bin/python3
others=$(for python in "$(command -v python3)" "$HOME"/.pyenv/versions/3.*/bin/python3; do
    version=$(version_of "$python") && [ -n "$version" ] && [ "$version" != "$(version_of "$debian")" ] && echo "$version $python"
done | sort -uV -k1,1)
mapfile -t pythons < <({ [ -z "$(version_of "$debian")" ] || echo "x $debian"; sed -n '1p;$p' <<<"$others"; } | awk 'NF == 2 && !seen[$2]++ { print $2 }')

for python in "${pythons[@]}"; do
    version=$(version_of "$python")
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
[ ${#pythons[@]} -gt 0 ] || skip "the Python module" "there is no Python from 3.9 on"
check "the module has at most 200 lines" of_few_lines
if command -v mypy >/dev/null; then check "mypy --strict" types_are_strict; else skip "mypy --strict" "mypy is not installed"; fi
finish
