/* temp_dir.h -- a directory of a test's own.
 *
 *     static char dir[] = "/tmp/ddp-thing-XXXXXX";
 */
#ifndef TESTS_LIB_TEMP_DIR_H
#define TESTS_LIB_TEMP_DIR_H

/* Make it; the Xs become what makes its name new. The test is over where that cannot be done. */
void temp_dir_make(char *path);

/* Remove it with all that is in it. */
void temp_dir_remove(const char *path);

#endif
