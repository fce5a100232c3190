/* failure.c -- see failure.h. */
#include "record/failure.h"

#include <string.h>

static const char *const no_restart_words[N_NO_RESTARTS] = {
#define X(name, word) [NO_RESTART_##name] = word,
    NO_RESTARTS(X)
#undef X
};

const char *no_restart_word(enum no_restart why)
{
    return why < N_NO_RESTARTS ? no_restart_words[why] : "?";
}

enum no_restart no_restart_find(const char *word)
{
    for (int why = 0; why < N_NO_RESTARTS; why++)
        if (strcmp(word, no_restart_words[why]) == 0)
            return (enum no_restart)why;
    return NO_RESTART_NONE;
}
