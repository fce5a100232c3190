/* rdzv_words.c -- the rows of rdzv_words.h as words, by their value. A value of no row is "?". */
#include "job/rdzv.h"

static const char *word(const char *const *words, unsigned at, unsigned n)
{
    return at < n ? words[at] : "?";
}

#define X(name, word) word,
static const char *const states[] = { RDZV_STATES(X) };
static const char *const whys[] = { RDZV_WHYS(X) };
static const char *const no_restarts[] = { RDZV_NO_RESTARTS(X) };
#undef X
#define X(name, ...) #name,
static const char *const codes[] = { "WELCOME", RDZV_REFUSALS(X) };
#undef X
#define X(name, grade, sentence, advice) advice,
static const char *const advices[] = { "", RDZV_REFUSALS(X) };
#undef X
static const char *const node_states[] = { "waiting", "running", "done",    "stopping",
                                           "stopped", "resting", "finished" };

#define WORD(words, at) word(words, (unsigned)(at), sizeof(words) / sizeof((words)[0]))

const char *rdzv_state_word(enum rdzv_state state)
{
    return WORD(states, state);
}

const char *rdzv_why_word(enum rdzv_why why)
{
    return WORD(whys, why);
}

const char *rdzv_no_restart_word(enum rdzv_no_restart no_restart)
{
    return WORD(no_restarts, no_restart);
}

const char *rdzv_refused_code(enum rdzv_refused refused)
{
    return WORD(codes, refused);
}

const char *rdzv_refused_advice(enum rdzv_refused refused)
{
    return WORD(advices, refused);
}

const char *rdzv_node_state_word(enum rdzv_node_state state)
{
    return WORD(node_states, state);
}
