/* safe_dir.h -- whether files may be created in a directory by name: TMPDIR and XDG_RUNTIME_DIR may come from another user,
 * as with `sudo -E`, who could replace what lies in a directory of his by a link.
 *
 * Safe is a directory when it and every directory above it belong to this user or to root, and only the owner may rename or
 * remove what lies there: not writable for others, unless sticky as /tmp is. */
#ifndef LAUNCHER_SAFE_DIR_H
#define LAUNCHER_SAFE_DIR_H

#include <limits.h>
#include <stdbool.h>

enum { SAFE_DIR_WHY_MAX = 160 };

/* Write the path without links to `out`: only by this path the directory is safe. False: `why` has the reason, which names
 * the directory at fault. */
bool safe_dir(const char *path, char out[PATH_MAX], char why[SAFE_DIR_WHY_MAX]);

#endif
