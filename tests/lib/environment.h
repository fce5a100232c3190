/* environment.h -- recorded environments of schedulers: tests/data/environments/NAME.env.
 *
 * A line "#host NAME" is the machine's name, "#file TEXT" a line of the file that the variables point at, any other "#" a
 * comment; the rest are variables. */
#ifndef TESTS_LIB_ENVIRONMENT_H
#define TESTS_LIB_ENVIRONMENT_H

enum { ENVIRONMENT_MAX = 8192, ENVIRONMENT_VARIABLES_MAX = 64 };

struct environment {
    char text[ENVIRONMENT_MAX]; /* what the others point into */
    char *block[ENVIRONMENT_VARIABLES_MAX + 1];
    const char *host;
    char file[ENVIRONMENT_MAX]; /* "" = none */
};

/* Fails the test when there is no such file. */
void environment_read(struct environment *e, const char *name);

#endif
