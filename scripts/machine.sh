# machine.sh -- prints one line with the machine and the versions of a measurement. Other scripts source this file.
# shellcheck shell=bash

# ddp_machine COMMAND BUILD -- COMMAND is the command that repeats the measurement.
ddp_machine() {
    local cpu
    cpu=$(LC_ALL=C lscpu | sed -n 's/^Model name: *//p' | head -n 1)
    echo "Measured on $(date -u +%Y-%m-%d) by \`$1\`: ${cpu:-unknown CPU}, $(nproc) cores, Linux $(uname -r)," \
        "$(sed -n 's/^PRETTY_NAME="\(.*\)"/\1/p' /etc/os-release), $(${CC:-gcc} --version | head -n 1)," \
        "$("$2/tests/bench/bench_probes" --versions "$2/ddprun"). Load before: $(cut -d' ' -f1 /proc/loadavg)."
}
