#!/usr/bin/env bash
# image.sh ARCH VERSION -- builds the image of Containerfile into build/dist with buildah, and runs a job in it. If
# buildah is missing or does not work here, the script skips the image and prints the reason.
set -euo pipefail
cd "$(dirname "$0")/../.."
arch=$1 version=$2 package=$PWD/${BUILD:-build}/package
work=$package/$arch/image
archive=${BUILD:-build}/dist/ddprun-$version-image-$arch.tar

# Use a separate storage, and no overlay file system, so that buildah also works inside a container.
buildah_here() {
    command buildah --root "$work/storage" --runroot "$work/run" --storage-driver vfs "$@"
}

skip() {
    echo "image: skipped, because $*"
    exit 0
}

command -v buildah >/dev/null || skip "buildah is not installed"
rm -rf "$work"
mkdir -p "$work/context"
cp -r "$package/$arch-musl/root" "$work/context/static"
cp -r "$package/$arch/root" "$work/context/root"
{ buildah_here from scratch && unshare -m true; } >"$work/log" 2>&1 || skip "buildah does not work here: $(tail -n 1 "$work/log")"
buildah_here bud -q --isolation chroot --timestamp "$SOURCE_DATE_EPOCH" -f scripts/package/Containerfile -t ddprun "$work/context" >/dev/null
rm -f "$archive"
buildah_here push -q ddprun "oci:$work/oci:ddprun:$version"
tar -C "$work/oci" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" --mode=go-w -cf "$archive" .
container=$(buildah_here from --pull-never ddprun)
buildah_here run --isolation chroot "$container" -- /bin/ddprun --nproc_per_node=2 /bin/ddpctl --version >"$work/job"
[ "$(grep -c '^\[[01]\] ddpctl ' "$work/job")" -eq 2 ] || { cat "$work/job" >&2; exit 1; }
rm -rf "$work/storage" "$work/run"
echo "image: $archive, ran a job of 2 workers"
