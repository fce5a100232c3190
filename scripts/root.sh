# root.sh -- functions for bare Debian systems in directories: make a system, copy this machine's settings to the
# system, and mount its file systems. Other scripts source this file. The functions need debootstrap and root.
# shellcheck shell=bash

# Print the first Debian package source of this machine. debootstrap and apt in a new system use this source, too.
root_mirror() {
    cat /etc/apt/sources.list /etc/apt/sources.list.d/*.sources /etc/apt/sources.list.d/*.list 2>/dev/null |
        grep -Eo '(https?|file|ftp)://[^ ]+' | grep -E 'debian/?$' | head -n 1
}

# root_make SUITE ROOT LOG -- makes a bare Debian in ROOT, if ROOT does not have a complete system already.
root_make() {
    [ ! -e "$2/etc/debian_version" ] || return 0
    echo "== making a bare Debian ($1) in $2 (minutes; the log is $3)"
    rm -rf --one-file-system "$2.new"
    debootstrap --variant=minbase "$1" "$2.new" "$(root_mirror)" >"$3" 2>&1 || {
        tail -n 20 "$3" >&2
        return 1
    }
    rm -rf "$2.new"/var/cache/apt/archives/*.deb
    mv "$2.new" "$2"
}

# root_settings ROOT [PATH...] -- copies this machine's settings for packages, and each PATH, to the same places in
# ROOT. Creates missing folders.
root_settings() {
    local root=$1 path
    shift
    for path in "$@" /etc/apt/keyrings /etc/apt/trusted.gpg.d /usr/share/keyrings /etc/ssl/certs /etc/resolv.conf /etc/hosts; do
        [ -e "$path" ] || continue
        mkdir -p "$root$(dirname "$path")"
        rm -rf "$root$path"
        cp -aL "$path" "$root$path"
    done
    # Copy apt's settings for downloads (proxy, timeouts), but not this machine's hooks.
    apt-config dump Acquire >"$root/etc/apt/apt.conf.d/90host"
}

# root_mount ROOT -- makes ROOT a separate mount point, because otherwise no program inside ROOT could unshare its
# mounts. Then mounts /proc, /sys and /dev.
root_mount() {
    mount --bind "$1" "$1" && mount --make-private "$1"
    mount -t proc proc "$1/proc"
    mount --rbind /sys "$1/sys" && mount --make-rslave "$1/sys"
    mount --rbind /dev "$1/dev" && mount --make-rslave "$1/dev"
}

# root_unmount ROOT -- unmounts ROOT and everything below it, the deepest mounts first. Detaches a busy mount.
root_unmount() {
    local point
    awk -v r="$1" '$2 == r || index($2, r "/") == 1 { print $2 }' /proc/mounts | sort -r | while IFS= read -r point; do
        umount "$point" 2>/dev/null || umount -l "$point"
    done
}
