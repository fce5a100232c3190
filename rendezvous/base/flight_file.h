/* flight_file.h -- a rank's flight recorder into a file, by the rank itself or, when it cannot, by its launcher. */
#ifndef BASE_FLIGHT_FILE_H
#define BASE_FLIGHT_FILE_H

#include "base/flight.h"

/* Into a new file under that name, mode 0600; what had it is unlinked before, and no link followed. False leaves a file that is not whole, or
 * none. In signal handlers, too. */
bool flight_file_write(const struct flight *flight, const char *path, const char *why);

#endif
