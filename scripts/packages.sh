# packages.sh -- the list of all Debian packages that ddprun needs, and functions that search for them and install them.
# Other scripts source this file. A probe searches for the program or the file, and not for the package, so that a
# library that was built by hand in /usr/local counts, too.

# Each row has: group, package, probe, purpose. Groups: build = `make`, test = `make test`, fuzz = `make fuzz`, format =
# `make format`, python = tests/shell/test_python.sh, torch = tests that need a genuine PyTorch, bench = the peers that
# `make bench` compares with, package = `make wheel`, packages = the checks of `make packages`, root =
# scripts/fresh-root.sh, deb = `make deb`, abi = tests/shell/test_exports.sh, nodes = `make nodes`, slurm =
# tests/shell/test_slurm.sh, page = tests/shell/test_timeline.sh.
# shellcheck shell=bash

DDP_PACKAGES='
build   make                command:make            the build
build   gcc                 command:gcc             the compiler
build   libc6-dev           header:stdlib.h         the C library
build   libuv1-dev          header:uv.h             the event loop
build   libcjson-dev        header:cjson/cJSON.h    JSON
build   libsodium-dev       header:sodium.h         HMAC-SHA256
build   zlib1g-dev          header:zlib.h           .gz data files, CRC-32
build   libopenblas-dev     library:openblas        matrix products
test    libcriterion-dev    header:criterion/criterion.h    unit tests
test    pkg-config          command:pkg-config      the test of the installed library
test    openssl             command:openssl         the attackers on --encrypt
test    binutils            command:nm              the checks of symbols
test    groff-base          command:groff           the check of the manual pages
python  python3-cloudpickle python:cloudpickle      functions of notebooks in ddprun.launch(), skipped without it
python  mypy                command:mypy            the types of the Python module, skipped without it
torch   python3-torch       python:torch            tests against a genuine PyTorch, skipped without it
fuzz    clang               command:clang           libFuzzer
fuzz    libclang-rt-dev     fuzzer:clang            the run-time of libFuzzer
format  clang-format        command:clang-format    make format
bench   mpich               command:mpiexec.hydra   the launcher to compare with
bench   openmpi-bin         command:mpirun.openmpi  the all-reduce to compare with
bench   libopenmpi-dev      command:mpicc.openmpi   the all-reduce to compare with
package python3-venv        python:ensurepip        the tools of make wheel
package dpkg-dev            command:dpkg-source     sources of the libraries in the wheel
packages qemu-user-static   command:qemu-aarch64-static  runs the programs for arm64, skipped without it
packages libc6-arm64-cross  file:/usr/aarch64-linux-gnu/lib/ld-linux-aarch64.so.1  their C library
packages buildah            command:buildah         builds the image, skipped without it
root    debootstrap         command:debootstrap     makes the bare root
deb     debhelper           command:dh              builds the Debian packages
deb     dpkg-dev            command:dpkg-buildpackage    the same
deb     lintian             command:lintian         checks them
abi     abigail-tools       command:abidiff         libddp against the last tag, skipped without it
page    chromium            command:chromium        the page of ddpctl timeline, skipped without it
slurm   munge               command:munged          a real Slurm on this machine, skipped without it
slurm   slurmctld           command:slurmctld       the same
slurm   slurmd              command:slurmd          the same
slurm   slurm-client        command:srun            the same
slurm   iproute2            command:ip              the network of its nodes
nodes   iproute2            command:ip              tests of several hosts, skipped without it
nodes   nftables            command:nft             firewalls between those hosts
nodes   iputils-ping        command:ping            does a host reach the other?
nodes   openssh-server      file:/usr/sbin/sshd     jobs of --hosts, skipped without it
nodes   openssh-client      command:ssh             the same
'

# Print the rows of the given groups as `package probe words...`.
ddp_rows() {
    local group
    for group in "$@"; do
        awk -v g="$group" '$1 == g { $1 = ""; sub(/^ /, ""); print }' <<<"$DDP_PACKAGES"
    done
}

# ddp_probe KIND:WHAT -- returns true if WHAT is installed. Without a compiler, searches the usual places for headers
# and libraries.
ddp_probe() {
    local what=${1#*:} cc=${CC:-gcc}
    command -v "${cc%% *}" >/dev/null || cc=
    case $1 in
    file:*) [ -e "$what" ] ;;
    command:*) PATH=$PATH:/usr/sbin:/sbin command -v "$what" >/dev/null ;;
    header:*)
        if [ -n "$cc" ]; then
            # shellcheck disable=SC2086  # CC and CPPFLAGS are lists of words
            printf '#include <%s>\n' "$what" | $cc ${CPPFLAGS:-} -x c -E - >/dev/null 2>&1
        else
            compgen -G "/usr/include/$what" >/dev/null || compgen -G "/usr/include/*/$what" >/dev/null
        fi
        ;;
    library:*)
        if [ -n "$cc" ]; then
            # shellcheck disable=SC2086
            echo 'int main(void) { return 0; }' | $cc -x c - ${LDFLAGS:-} "-l$what" -o /dev/null 2>/dev/null
        else
            compgen -G "/usr/lib/*/lib$what.so" >/dev/null
        fi
        ;;
    python:*)
        /usr/bin/python3 -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec(sys.argv[1]) is None)' \
            "$what" 2>/dev/null
        ;;
    fuzzer:*)
        local out
        command -v "$what" >/dev/null || return 1
        out=$(mktemp)
        echo 'int LLVMFuzzerTestOneInput(const char *p, long n) { return p == 0 && n == 1; }' |
            "$what" -fsanitize=fuzzer,address,undefined -x c - -o "$out" 2>/dev/null
        local rc=$?
        rm -f "$out"
        return $rc
        ;;
    esac
}

# ddp_missing GROUP... -- prints the rows of the groups whose package is not installed.
ddp_missing() {
    local package probe words
    while read -r package probe words; do
        ddp_probe "$probe" || echo "$package $probe $words"
    done < <(ddp_rows "$@")
}

# ddp_install_command PACKAGE... -- prints the command for the user.
ddp_install_command() {
    local sudo='sudo '
    [ "$(id -u)" -ne 0 ] || sudo=
    echo "${sudo}apt-get install -y --no-install-recommends $*"
}

# ddp_install GROUP... -- installs the missing packages of the groups, and prints their names. Prints nothing if no
# package is missing.
ddp_install() {
    local rows packages sudo=()
    rows=$(ddp_missing "$@")
    [ -n "$rows" ] || return 0
    packages=$(awk '{ print $1 }' <<<"$rows" | sort -u | tr '\n' ' ')
    echo "== installing what is missing (for: $*)"
    awk '{ p = $1; $1 = $2 = ""; sub(/^ +/, ""); printf "   %-20s %s\n", p, $0 }' <<<"$rows"
    if [ "$(id -u)" -ne 0 ]; then
        sudo=(sudo)
        if ! command -v sudo >/dev/null; then
            echo "not root, and there is no sudo. Let root do: apt-get install -y --no-install-recommends $packages" >&2
            return 1
        fi
    fi
    if ! command -v apt-get >/dev/null; then
        echo "this is not Debian or Ubuntu (no apt-get): install the equivalents of $packages by hand" >&2
        return 1
    fi
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q update >/dev/null
    # shellcheck disable=SC2086  # a list of names
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends install $packages \
        >/dev/null || return 1
    rows=$(ddp_missing "$@")
    [ -z "$rows" ] || echo "still missing after the installation: $rows" >&2
    [ -z "$rows" ]
}
