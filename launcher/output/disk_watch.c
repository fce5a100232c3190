/* disk_watch.c -- see disk_watch.h. An operation stores its path, then its start time. A reader reads the time, the
 * path and the time again. If both times are equal, no operation has changed the path meanwhile. */
#include "output/disk_watch.h"

#include "base/clock.h"

#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>

struct disk_watch {
    atomic_bool left, stuck;
    struct disk_slot {
        _Atomic uint64_t since_ms; /* start of the operation; 0 if no operation runs */
        char path[DISK_PATH_MAX];
    } slots[DISK_USERS];
};

static struct disk_watch own, *watch = &own;

/* Share the slots with the guardian. If mmap fails, the guardian cannot read the agent's slots and waits for the agent
 * without a limit. */
void disk_watch_share(void)
{
    void *shared = mmap(NULL, sizeof(*watch), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared != MAP_FAILED)
        watch = shared;
}

void disk_begin(enum disk_user user, const char *path)
{
    struct disk_slot *slot = &watch->slots[user];
    snprintf(slot->path, sizeof(slot->path), "%s", path);
    atomic_store(&slot->since_ms, clock_ms());
}

void disk_end(enum disk_user user)
{
    atomic_store(&watch->slots[user].since_ms, 0);
}

bool disk_hangs(uint64_t ms, char path[DISK_PATH_MAX])
{
    const uint64_t now_ms = clock_ms();
    for (int i = 0; i < DISK_USERS; i++) {
        struct disk_slot *slot = &watch->slots[i];
        const uint64_t since_ms = atomic_load(&slot->since_ms);
        if (since_ms == 0 || now_ms < since_ms + ms)
            continue;
        if (path != NULL)
            snprintf(path, DISK_PATH_MAX, "%s", slot->path);
        if (atomic_load(&slot->since_ms) == since_ms)
            return true;
    }
    return false;
}

void disk_watch_leave(bool is_stuck)
{
    atomic_store(&watch->stuck, is_stuck);
    atomic_store(&watch->left, true);
}

bool disk_watch_left(bool *is_stuck)
{
    const bool left = atomic_load(&watch->left);
    *is_stuck = left && atomic_load(&watch->stuck);
    return left;
}
