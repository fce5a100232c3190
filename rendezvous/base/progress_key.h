/* progress_key.h -- where a worker tells how far it has come, and the launcher looks for it.
 *
 * "ddprun/progress/<rank>" holds the highest step that rank has finished, in decimal digits. */
#ifndef BASE_PROGRESS_KEY_H
#define BASE_PROGRESS_KEY_H

#define PROGRESS_KEY "ddprun/progress/"

#endif
