#!/usr/bin/env bash
# layers.sh [FILE...] -- checks that every #include follows the arrows between the layers (default: all sources).
#
#     launcher -> rendezvous -> include/ddp <- worker <- worker/train
#
# and inside rendezvous/, where everything may use base/, and job, diagnosis, hub and ctl may use record/:
#
#     server -> hub -> diagnosis -> job -> store      store <- client (only the table of requests and the encoding)      ctl -> client
#
# (ddpctl's main program may also include launcher/contain, diagnosis/findings.h and auth/, because it reads the records
# of running jobs, explains codes and needs the secret)
#
# and inside launcher/, where all directories may use diagnosis/findings.h, and each directory may use some of the
# directories before it (see below()):
#
#     tables  cli  plan  agent  net  contain  output  remote  report  node
#
# and inside worker/:
#
#     core <- reducer, checkpoint, data      core, reducer <- cpu, cuda
#
# The worker library may also use rendezvous/base and rendezvous/record. It uses the store client only through the
# public header.
set -euo pipefail
cd "$(dirname "$0")/.."

# The directories that a directory of launcher/ may include.
below() {
    local names='' name
    case $1 in
    cli) names='tables' ;;
    plan) names='tables cli' ;;
    agent) names='tables' ;;
    net) names='tables cli plan agent' ;;
    contain) names='tables cli plan' ;;
    output) names='tables cli plan agent contain' ;;
    remote) names='tables cli plan agent net contain output' ;;
    report) names='tables cli plan agent net contain output' ;;
    node) names='tables cli plan agent net contain output report' ;;
    esac
    for name in $names; do
        echo -n "launcher/$name "
    done
    case $1 in
    output) echo uv.h ;;
    remote) echo uv.h rendezvous/auth ;;
    net) echo uv.h protocol rendezvous/auth rendezvous/server ;;
    node) echo uv.h rendezvous/auth rendezvous/server ;;
    esac
}

# Set `layer` to the layer of file $1, and `allowed` to what it may include: layers, and headers of third parties.
set_layer() {
    case $1 in
    include/ddp/*) layer=include/ddp allowed='include/ddp' ;;
    rendezvous/base/*) layer=rendezvous/base allowed='include/ddp rendezvous/base cjson/cJSON.h' ;;
    rendezvous/record/*) layer=rendezvous/record allowed='include/ddp rendezvous/base rendezvous/record cjson/cJSON.h' ;;
    rendezvous/auth/*) layer=rendezvous/auth allowed='include/ddp rendezvous/base protocol rendezvous/auth sodium.h' ;;
    rendezvous/store/ops.h | rendezvous/store/encode.h | rendezvous/hub/messages.[ch]) layer=protocol
        allowed='include/ddp rendezvous/base rendezvous/record protocol findings cjson/cJSON.h' ;;
    rendezvous/diagnosis/findings.[ch]) layer=findings
        allowed='include/ddp rendezvous/base findings cjson/cJSON.h' ;;
    rendezvous/store/*) layer=rendezvous/store allowed='include/ddp rendezvous/base protocol rendezvous/store' ;;
    rendezvous/job/*) layer=rendezvous/job
        allowed='include/ddp rendezvous/base rendezvous/record protocol findings rendezvous/store rendezvous/job' ;;
    rendezvous/diagnosis/*) layer=rendezvous/diagnosis
        allowed='include/ddp rendezvous/base rendezvous/record protocol findings rendezvous/store rendezvous/job rendezvous/diagnosis cjson/cJSON.h' ;;
    rendezvous/hub/*) layer=rendezvous/hub
        allowed='include/ddp rendezvous/base rendezvous/auth rendezvous/record protocol findings rendezvous/store rendezvous/job rendezvous/diagnosis rendezvous/hub cjson/cJSON.h' ;;
    rendezvous/server/*) layer=rendezvous/server
        allowed='include/ddp rendezvous/base rendezvous/auth protocol findings rendezvous/store rendezvous/job rendezvous/diagnosis rendezvous/hub rendezvous/server uv.h' ;;
    rendezvous/client/*) layer=rendezvous/client
        allowed='include/ddp rendezvous/base protocol rendezvous/client cjson/cJSON.h' ;;
    rendezvous/ctl/ddpctl.c) layer=rendezvous/ctl # reads the records of this user's jobs
        allowed='include/ddp rendezvous/base rendezvous/auth rendezvous/record rendezvous/client findings rendezvous/ctl launcher/contain cjson/cJSON.h' ;;
    rendezvous/ctl/*) layer=rendezvous/ctl
        allowed='include/ddp rendezvous/base rendezvous/record rendezvous/client rendezvous/ctl cjson/cJSON.h' ;;
    launcher/*/*) layer=${1%/*} allowed="include/ddp rendezvous/base rendezvous/record findings cjson/cJSON.h ${1%/*} $(below "${layer#*/}")" ;;
    launcher/*) layer=launcher allowed="rendezvous/base rendezvous/auth rendezvous/record findings $(below node) launcher/node launcher/remote" ;;
    worker/core/*) layer=worker/core allowed='include/ddp rendezvous/base rendezvous/record worker/core cjson/cJSON.h' ;;
    worker/reducer/* | worker/checkpoint/* | worker/data/*) layer=${1%/*}
        allowed="include/ddp rendezvous/base worker/core $layer zlib.h cjson/cJSON.h" ;;
    worker/bench/*) layer=worker/bench allowed='include/ddp rendezvous/base worker/core worker/bench' ;;
    worker/train/cuda/*) layer=worker/train/cuda allowed='include/ddp worker/cuda worker/train worker/train/cuda' ;;
    worker/train/*) layer=worker/train allowed='include/ddp rendezvous/base worker/train worker/train/cuda zlib.h cjson/cJSON.h cblas.h' ;;
    worker/cpu/* | worker/cuda/*) layer=${1%/*} allowed="include/ddp rendezvous/base worker/core worker/reducer $layer cjson/cJSON.h" ;;
    *) layer=tests allowed= ;;
    esac
}

# resolve NAME FILE -- sets `target` to the file that the compiler finds for #include "NAME" in FILE, or to "" if there
# is no such file.
resolve() {
    local dir
    target=
    for dir in "${2%/*}" include rendezvous launcher worker .; do
        if [ -f "$dir/$1" ]; then
            target=$dir/$1
            while [[ $target =~ ^(.*/)?[^/.]+/\.\./(.*)$ ]]; do
                target=${BASH_REMATCH[1]}${BASH_REMATCH[2]}
            done
            return
        fi
    done
}

bad=0
complain() {
    echo "  layers: $1"
    bad=$((bad + 1))
}

# check FILE LINE NAME own|system -- checks one #include.
check() {
    local layer allowed target from wanted
    set_layer "$1"
    from=$layer wanted=" $allowed "
    if [ "$4" = own ]; then
        resolve "$3" "$1"
        set_layer "$target"
        if [ -z "$target" ]; then
            complain "$1:$2 includes \"$3\", which is nowhere"
        elif [[ $wanted != *" $layer "* ]]; then
            complain "$1:$2: $from must not include $target"
        fi
    elif [[ " uv.h cjson/cJSON.h sodium.h zlib.h cblas.h " == *" $3 "* && $wanted != *" $3 "* ]]; then
        complain "$1:$2: $from must not include <$3>"
    fi
}

files=("$@")
[ $# -gt 0 ] || mapfile -t files < <(find include rendezvous launcher worker -name '*.[ch]' | sort)
include='^([^:]+):([0-9]+):[[:space:]]*#[[:space:]]*include[[:space:]]*([<"])([^>"]+)[>"]'
while IFS= read -r text; do
    [[ $text =~ $include ]] || continue
    kind=own
    [ "${BASH_REMATCH[3]}" = '"' ] || kind=system
    check "${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}" "${BASH_REMATCH[4]}" "$kind"
done < <(grep -HnE '^[[:space:]]*#[[:space:]]*include' "${files[@]}")
echo "layers: ${#files[@]} files, $bad wrong include(s)"
[ "$bad" -eq 0 ]
