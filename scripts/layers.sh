#!/usr/bin/env bash
# layers.sh [FILE...] -- checks that every #include follows the arrows between the layers (default: all sources).
#
#     launcher -> rendezvous -> include/ddp <- worker <- worker/train
#
# The worker library may also use rendezvous/base, and links the store client by its public header.
set -euo pipefail
cd "$(dirname "$0")/.."

layer_of() {
    case $1 in
    include/ddp/*) echo include/ddp ;;
    rendezvous/base/*) echo rendezvous/base ;;
    rendezvous/*) echo rendezvous ;;
    launcher/*) echo launcher ;;
    worker/train/*) echo worker/train ;;
    worker/*) echo worker ;;
    *) echo tests ;;
    esac
}

# layer: the layers and system headers of third parties that it may include.
allowed_for() {
    case $1 in
    include/ddp) echo include/ddp ;;
    rendezvous/base) echo include/ddp rendezvous/base ;;
    rendezvous) echo include/ddp rendezvous/base rendezvous uv.h cjson/cJSON.h ;;
    launcher) echo include/ddp rendezvous/base rendezvous launcher uv.h cjson/cJSON.h ;;
    worker) echo include/ddp rendezvous/base worker zlib.h cjson/cJSON.h ;;
    worker/train) echo include/ddp worker/train zlib.h cjson/cJSON.h cblas.h ;;
    esac
}

# Where the compiler would find "name", included by file $2.
resolve() {
    local dir
    for dir in "$(dirname "$2")" include rendezvous launcher worker .; do
        if [ -f "$dir/$1" ]; then
            realpath --relative-to=. "$dir/$1"
            return
        fi
    done
}

[ $# -gt 0 ] || mapfile -t files < <(find include rendezvous launcher worker -name '*.[ch]' | sort)
[ $# -eq 0 ] || files=("$@")
bad=0
complain() {
    echo "  layers: $1"
    bad=$((bad + 1))
}

for file in "${files[@]}"; do
    layer=$(layer_of "$file")
    allowed=" $(allowed_for "$layer") "
    while IFS=: read -r line text; do
        name=$(sed -E 's/.*[<"]([^>"]+)[>"].*/\1/' <<<"$text")
        if [[ $text == *'"'* ]]; then
            target=$(resolve "$name" "$file")
            if [ -z "$target" ]; then
                complain "$file:$line includes \"$name\", which is nowhere"
            elif [[ $allowed != *" $(layer_of "$target") "* ]]; then
                complain "$file:$line: $layer must not include $target"
            fi
        elif [[ " uv.h cjson/cJSON.h zlib.h cblas.h " == *" $name "* && $allowed != *" $name "* ]]; then
            complain "$file:$line: $layer must not include <$name>"
        fi
    done < <(grep -nE '^[[:space:]]*#[[:space:]]*include' "$file" || true)
done
echo "layers: ${#files[@]} files, $bad wrong include(s)"
[ "$bad" -eq 0 ]
