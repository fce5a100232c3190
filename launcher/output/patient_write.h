/* patient_write.h -- the last words, to a descriptor that may have a reader who does not read. */
#ifndef LAUNCHER_PATIENT_WRITE_H
#define LAUNCHER_PATIENT_WRITE_H

#include "base/slice.h"

/* All of it: 0, or the errno that kept it from the rest; ETIMEDOUT when for `unread_ms` nothing could be written. */
int patient_write(int fd, struct slice bytes, int unread_ms);

#endif
