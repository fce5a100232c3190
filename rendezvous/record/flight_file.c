/* flight_file.c -- see flight.h. All functions that this file calls are in POSIX's list for signal handlers, because
 * the recorder of a rank (recorder.c) writes the file in its handler of SIGUSR1. */
#include "record/flight.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

/* Write all bytes to the descriptor at `user`. */
static bool write_whole(void *user, const char *text, size_t len)
{
    const int *fd = user;
    while (len > 0) {
        const ssize_t n = write(*fd, text, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        text += n;
        len -= (size_t)n;
    }
    return true;
}

/* Write a new file. Unlink an old file, and open the new file with O_EXCL, so that the open never follows another
 * user's link. */
static bool write_new(const struct flight *flight, const char *path, const char *why)
{
    unlink(path);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return false;
    const bool ok = flight_json(flight, why, clock_ns(), write_whole, &fd);
    return close(fd) == 0 && ok;
}

bool flight_file_write(const struct flight *flight, const char *path, const char *temporary, const char *why)
{
    const bool ok = write_new(flight, temporary, why) && rename(temporary, path) == 0;
    if (!ok)
        unlink(temporary);
    return ok;
}
