/* hung_disk.h -- a file system that stops answering, as an NFS server does that is gone: FUSE without a library. Needs root.
 *
 * It holds names and sizes and no bytes. Once it hangs, a call that is under way sleeps in the kernel, where SIGKILL does not
 * end it. Mount it in a mount namespace of the test's own (rude_own_mounts). */
#ifndef TESTS_LIB_HUNG_DISK_H
#define TESTS_LIB_HUNG_DISK_H

/* Mount on the directory `where`. Skips the test where FUSE cannot be mounted. */
void hung_disk_mount(const char *where);

/* Answer no request from now on. */
void hung_disk_hang(void);

/* Is a request waiting for an answer? True after hung_disk_hang() when a process has touched the disk. */
int hung_disk_requests(void);

/* End the server: each call that hangs fails with ENOTCONN. */
void hung_disk_end(void);

#endif
