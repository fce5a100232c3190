#!/usr/bin/env bash
# Test the completions for ddprun and ddpctl in bash, zsh and fish themselves.
# shellcheck source=tests/shell/tap.sh disable=SC2317,SC2016,SC2154  # `check` calls the functions; zsh expands the quoted text
. "$(dirname "$0")/tap.sh"

for program in ddprun ddpctl; do
    for shell in bash zsh fish; do
        "$BUILD/$program" --print-completion "$shell" >"$tmp/$program.$shell"
    done
done
mkdir -p "$tmp/files/logs" "$tmp/home"
touch "$tmp/files/train.py" "$tmp/files/trial.log"

# Complete a line in bash. The line is split as readline splits it: at blanks and around '='.
offered_by_bash() {
    HOME=$tmp/home bash --norc --noprofile -c '
        source "$1"; line=$2
        compopt() { :; }
        [ -n "$3" ] || line=${line//=/ = }
        read -ra COMP_WORDS <<<"$line"
        [[ $2 != *" " ]] || COMP_WORDS+=("")
        COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
        "_${2%% *}" && printf "%s\n" "${COMPREPLY[@]}"' - "$tmp/${1%% *}.bash" "$1" "$2"
}

offered_by_fish() {
    HOME=$tmp/home fish -N -c "source $tmp/ddprun.fish; source $tmp/ddpctl.fish; complete -C '$1'" | cut -f1
}

# Complete a line in zsh. zsh completes only at a terminal, so create one. Each compadd prints the words that it adds.
cat >"$tmp/zshrc" <<'EOS'
PROMPT=
autoload compinit; compinit -D -u
bindkey '^I' complete-word
begin_and_end () { echo -E - $'\0' }
compprefuncs=( begin_and_end )
comppostfuncs=( begin_and_end exit )
zstyle ':completion:*' insert-tab false
compadd () {
    if [[ ${@[1,(i)(-|--)]} == *-(O|A|D)\ * ]]; then builtin compadd "$@"; return; fi
    local -a hits
    builtin compadd -A hits "$@"
    local hit
    for hit in $hits; do echo -E - "$IPREFIX$hit"; done
}
EOS
offered_by_zsh() {
    HOME=$tmp/home timeout 60 zsh -f -c '
        zmodload zsh/zpty
        zpty z zsh -f -i
        zpty -w z "source $1/zshrc; source $1/${2%% *}.zsh; print REA\"\"DY"
        while zpty -r z line; do [[ $line == *READY* ]] && break; done
        zpty -w -n z "$2"$'\''\t'\''
        zpty -r z out $'\''*\0*\0'\''
        print -r -- ${${out#*$'\''\0'\''}%$'\''\0'\''*}' - "$tmp" "$1" | tr -d '\r'
}

# offers SHELL LINE WORD... -- succeeds if the shell offers exactly these words. "..." at the end allows other words.
offers() {
    local shell=$1 line=$2 got
    shift 2
    got=$(cd "$tmp/files" && "offered_by_$shell" "$line" | sed "s/^.*=\(.\)/\1/; s/=$//; s/ *$//; s:/$::" | grep . | sort -u)
    echo "for '$line': $got"
    if [ "${*: -1}" = ... ]; then
        [ "$(comm -13 <(echo "$got") <(printf '%s\n' "${@:1:$#-1}" | sort))" = "" ]
    else
        [ "$got" = "$(printf '%s\n' "$@" | grep . | sort)" ]
    fi
}

# has SHELL -- succeeds if the shell can be tested.
has() {
    case $1 in
    zsh) command -v zsh >/dev/null && zsh -f -c 'zmodload zsh/zpty' 2>/dev/null ;;
    *) command -v "$1" >/dev/null ;;
    esac
}

# in_each SENTENCE LINE WORD... -- checks `offers` in each shell.
in_each() {
    local what=$1 shell
    shift
    for shell in bash zsh fish; do
        if has "$shell"; then
            check "$shell: $what" offers "$shell" "$@"
        else
            skip "$shell: $what" "$shell is not installed"
        fi
    done
}

in_each "the values of an option after a blank" "ddprun --contain " auto plain cgroup pidns
in_each "the values of an option after =" "ddprun --contain=p" plain pidns
in_each "values of a name with dashes" "ddprun --exit-code m" max
in_each "words instead of numbers" "ddprun --nproc_per_node=" gpu cpu auto
in_each "a name with underscores" "ddprun --nproc_p" --nproc_per_node
in_each "a name with dashes" "ddprun --nproc-p" --nproc-per-node
in_each "switches" "ddprun --contain=plain --stand" --standalone
in_each "schedulers" "ddprun --scheduler s" slurm
in_each "a port is not a file" "ddprun --master_port " ""
in_each "a directory for an option that needs one" "ddprun --log_dir " logs
in_each "a file for an option that needs one" "ddprun --events t" train.py trial.log
in_each "a program or a file" "ddprun -t 3 --nproc_per_node 2 tra" train.py ...
in_each "no words after the program" "ddprun train.py --stand" ""
in_each "the commands of ddprun in addition to programs" "ddprun expl" explain
in_each "the commands for jobs in the background" "ddprun att" attach
in_each "the commands of ddpctl" "ddpctl ba" barriers
in_each "ddpctl status needs no file" "ddpctl status " ""
in_each "ddpctl timeline reads files" "ddpctl timeline t" train.py trial.log
in_each "ddpctl writes a file" "ddpctl timeline -o t" train.py trial.log
in_each "options of ddpctl after the command" "ddpctl status --js" --json
in_each "the shells of --print-completion" "ddpctl --print-completion f" fish
check "bash: a value if = does not split words" test "$(offered_by_bash 'ddprun --contain=cg' uncut)" = --contain=cgroup
finish
