#!/usr/bin/env bash
# purity.sh [OBJECT.o...] -- checks that the modules of scripts/pure-modules (and the given objects) only compute. The
# script lists the allowed functions, not the forbidden ones, so that a new function counts as impure until it is
# listed.

# A pure object may import the C library's functions for arithmetic, memory and text, and also cJSON, matrix products
# and the features of the processor. It may also import functions of other pure objects. So a pure module cannot reach a
# clock through an impure module. The script names unlisted modules that are pure, so that the user can add them to the
# list. A function that no other file of the product calls must be static, unless libddp exports it.
set -euo pipefail
cd "$(dirname "$0")/.."
BUILD=${BUILD:-build}

allowed='
mem(cpy|move|set|cmp|chr|rchr|mem) str(len|nlen|cpy|ncpy|cat|ncat|cmp|ncmp|casecmp|ncasecmp|chr|rchr|str|spn|cspn|pbrk)
str(dup|ndup|sep|tok_r|tol|toll|toul|toull|tof|tod|error|signal) stpcpy reg(comp|exec|error|free)
malloc calloc realloc free v?snprintf v?asprintf sscanf qsort bsearch
is(alnum|alpha|digit|print|space|xdigit|upper|lower) tolower toupper ctype_(b|tolower|toupper)_loc
(exp|log|log2|log10|pow|sqrt|fabs|floor|ceil|round|lround|llround|fmin|fmax|fmod|sin|cos|sincos|tanh|hypot|ldexp|nearbyint|rint)f?
crypto_(auth_hmacsha256|hash_sha256)_?[a-z]* sodium_(memcmp|memzero|bin2hex)
cJSON_[A-Za-z0-9]+ cblas_[sd](gemm|gemv|axpy|scal|dot) crc32(_z)? adler32
str(errordesc|errorname)_np sig(abbrev|descr)_np libc_current_sigrt(min|max) inet_(ntop|pton) gai_strerror
errno_location stack_chk_fail assert_fail cpu_model GLOBAL_OFFSET_TABLE_
'

objects=() bad=0
while read -r module; do
    if [ -f "$module.c" ]; then
        objects+=("$BUILD/obj/$module.o")
    else
        echo "  impure  $module: listed in scripts/pure-modules, but there is no $module.c"
        bad=$((bad + 1))
    fi
done < <(grep -v '^#' scripts/pure-modules)
objects+=("$@")

# The objects of unlisted modules. Skip objects of deleted sources.
mapfile -t unlisted < <(find "$BUILD"/obj/{rendezvous,launcher,worker} -name '*.o' 2>/dev/null | sort |
    while IFS= read -r object; do
        module=${object#"$BUILD"/obj/}
        [ ! -f "${module%.o}.c" ] || echo "$object"
    done | grep -vxF "$(printf '%s\n' "${objects[@]}")")

# nm prints lines `FILE:ADDRESS TYPE SYMBOL` for the objects of both lists. Before the comparison, aliases of the C
# library are replaced by the plain names: __memcpy_chk -> memcpy, __isoc99_sscanf -> sscanf.
nm -A "${objects[@]}" "${unlisted[@]}" | awk -v pattern="^($(xargs <<<"$allowed" | tr ' ' '|'))\$" \
    -v exported="$(grep -oh 'ddp_[a-z0-9_]*' include/ddp/*.h worker/cuda/exports.map | xargs)" \
    -v listed="${#objects[@]}" -v build="$BUILD/obj/" -v objects="${objects[*]}" -v unlisted="${unlisted[*]}" '
    function allows(symbol) {
        sub(/@.*/, "", symbol)
        sub(/^__isoc(99|23)_/, "", symbol)
        sub(/^_+/, "", symbol)
        sub(/_chk$|_finite$/, "", symbol)
        return symbol ~ pattern
    }
    BEGIN {
        n = split(objects, object, " ")
        m = split(unlisted, other, " ")
        for (i = 1; i <= n; i++)
            pure[object[i]] = 1
        used["main"] = 1
        split(exported, names, " ")
        for (i in names)
            used[names[i]] = 1
    }
    {
        file = $1
        sub(/:[^:]*$/, "", file)
        symbol = $NF
        if ($(NF - 1) == "U")
            used[symbol] = 1
        else if ($(NF - 1) ~ /^[DRT]$/)
            defined[symbol] = file
        if ($(NF - 1) == "U")
            imports[file] = imports[file] " " symbol
        else if ($(NF - 1) ~ /^[A-Z]$/ && pure[file])
            own[symbol] = 1
        else if ($(NF - 1) ~ /^[A-Z]$/)
            home[symbol] = file
    }
    function foreign(file,    list, k, i, out) {
        k = split(imports[file], list, " ")
        for (i = 1; i <= k; i++)
            if (!(list[i] in own) && !allows(list[i]))
                out = out " " list[i]
        return out
    }
    # Print the unlisted modules that import only allowed functions and functions of each other. Begin with all unlisted
    # modules, and remove modules until nothing changes.
    function propose(    i, j, k, list, changed) {
        for (i = 1; i <= m; i++)
            maybe[other[i]] = 1
        do {
            changed = 0
            for (i = 1; i <= m; i++) {
                k = split(foreign(other[i]), list, " ")
                for (j = 1; j <= k; j++)
                    if (maybe[other[i]] && !maybe[home[list[j]]]) {
                        maybe[other[i]] = 0
                        changed = 1
                    }
            }
        } while (changed)
        for (i = 1; i <= m; i++)
            if (maybe[other[i]])
                print "  note: " name(other[i]) " is pure, but not in scripts/pure-modules"
    }
    function name(file) {
        sub("^" build, "", file)
        sub(/\.o$/, "", file)
        return file
    }
    END {
        for (i = 1; i <= n; i++)
            if ((out = foreign(object[i])) != "") {
                print "  impure  " name(object[i]) " imports:" out
                bad++
            }
        for (symbol in defined)
            if (!(symbol in used)) {
                print "  " name(defined[symbol]) ".c: only this file uses " symbol ", so it must be static"
                bad++
            }
        propose()
        exit bad > 0
    }' || bad=$((bad + 1))

[ "$bad" -ne 0 ] || echo "purity: ${#objects[@]} modules are pure"
[ "$bad" -eq 0 ]
