/* snapshot_case.h -- the state of a job as text, and the expected findings. A test names only the members that
 * differ from a usual job, so that the cause of a finding is easy to see. */
#ifndef SNAPSHOT_CASE_H
#define SNAPSHOT_CASE_H

#include "diagnosis/text.h"

#include <criterion/criterion.h>

/* The macros below make a usual node, a usual rank or a usual job. An argument can change a member, because the
 * arguments come last: a later initializer of a member replaces an earlier one. */
#if defined(__clang__)
#pragma clang diagnostic ignored "-Winitializer-overrides"
#else
#pragma GCC diagnostic ignored "-Woverride-init"
#endif

#define LEN(array) (sizeof(array) / sizeof((array)[0]))
#define NODES(...)                                          \
    .nodes = (const struct snapshot_node[]){ __VA_ARGS__ }, \
    .n_nodes = LEN(((const struct snapshot_node[]){ __VA_ARGS__ }))
#define RANKS(...)                                          \
    .ranks = (const struct snapshot_rank[]){ __VA_ARGS__ }, \
    .n_ranks = LEN(((const struct snapshot_rank[]){ __VA_ARGS__ }))
#define LIST(name, type, ...) \
    .name = (const struct type[]){ __VA_ARGS__ }, .n_##name = LEN(((const struct type[]){ __VA_ARGS__ }))

/* Make a node. The number `n` selects the node's host, address and boot id. */
#define NODE(n, ...)                                                                                    \
    {                                                                                                   \
        .host = "n" #n, .addr = "10.9.0.1" #n, .own = "", .boot_id = "boot" #n, .version = "0.1.0",     \
        .state = "waits", .node_rank = n, .nproc = 2, .pid = 400 + (n), .joined_ms = 60000, __VA_ARGS__ \
    }
#define GATHERING                                                                                     \
    .job = "k3", .phase = PHASE_GATHERING, .min = 2, .max = 2, .waited_ms = 62000, .left_ms = 838000, \
    .limit_ms = 900000, .knob = "--timeout", .store = { .host = "n0", .endpoint = "10.9.0.10:29500" }
#define RUNNING                                                                           \
    .job = "k3", .phase = PHASE_RUNNING, .min = 2, .max = 2, .round = 1, .world_size = 4, \
    .store = { .host = "n0", .endpoint = "10.9.0.10:29500" }, NODES(NODE(0), NODE(1))
#define REFUSED(why, n, ...)                                                                         \
    {                                                                                                \
        .code = why, .words = "words", .host = "n" #n, .addr = "", .node_rank = n, .pid = 900 + (n), \
        .times = 1, .ago_ms = 4000, __VA_ARGS__                                                      \
    }
/* Make rank `n`, which waits in a barrier (IN_BARRIER) or for a key (AT_KEY). */
#define IN_BARRIER(n, barrier)                                                                     \
    {                                                                                              \
        .rank = n, .host = "n0", .pid = 70 + (n), .started = true, .met = true, .connected = true, \
        .waits = {                                                                                 \
            .name = { barrier, sizeof(barrier) - 1 },                                              \
            .in_barrier = true,                                                                    \
            .for_ms = 60000                                                                        \
        }                                                                                          \
    }
#define AT_KEY(n, key)                                                                             \
    {                                                                                              \
        .rank = n, .host = "n0", .pid = 70 + (n), .started = true, .met = true, .connected = true, \
        .waits = {                                                                                 \
            .name = { key, sizeof(key) - 1 },                                                      \
            .for_ms = 60000                                                                        \
        }                                                                                          \
    }
#define RANK(n, ...)                                                           \
    {                                                                          \
        .rank = n, .host = "n1", .pid = 70 + (n), .started = true, __VA_ARGS__ \
    }
#define BARRIER(text, n)                                                                    \
    {                                                                                       \
        .name = { text, sizeof(text) - 1 }, .is_barrier = true, .waiting = n, .members = 4, \
        .rank = UINT32_MAX, .for_ms = 60000                                                 \
    }
#define KEY(text, n)                                                                          \
    {                                                                                         \
        .name = { text, sizeof(text) - 1 }, .waiting = n, .rank = UINT32_MAX, .for_ms = 60000 \
    }
#define THREE_WAIT LIST(waits, snapshot_wait, BARRIER("step-7", 3))
#define THREE      IN_BARRIER(0, "step-7"), IN_BARRIER(1, "step-7"), IN_BARRIER(2, "step-7")

static inline struct diagnosis look(struct snapshot s)
{
    static struct diagnosis d;
    diagnose_job(&s, &d);
    for (uint32_t i = 0; i < d.n; i++) {
        cr_assert_null(strstr(d.list[i].sentence, "${"), "a word is missing: %s", d.list[i].sentence);
        cr_assert_null(strstr(d.list[i].advice, "${"), "a word is missing: %s", d.list[i].advice);
        const bool is_note = !finding_is_trouble(d.list[i].code);
        if (i > 0 && is_note == !finding_is_trouble(d.list[i - 1].code))
            cr_assert_leq(d.list[i - 1].code, d.list[i].code, "consequences follow causes");
        else
            cr_assert(i == 0 || is_note, "notes are last");
    }
    return d;
}

/* Expect that finding `i` has code `code` and subject `subject`, and that its sentence contains `sentence`. */
static inline void expect_at(const struct diagnosis *d, uint32_t i, const char *code, const char *subject,
                             const char *sentence)
{
    cr_assert_gt(d->n, i, "no finding %s", code);
    const struct finding *f = &d->list[i];
    cr_assert_str_eq(finding_code_name(f->code), code, "%s: %s", finding_code_name(f->code), f->sentence);
    cr_assert_str_eq(f->subject, subject);
    cr_assert(strstr(f->sentence, sentence) != NULL, "'%s' is not in: %s", sentence, f->sentence);
}

#define EXPECT(snapshot_, code_, subject_, sentence_)                      \
    do {                                                                   \
        struct diagnosis d_ = look(snapshot_);                             \
        expect_at(&d_, 0, code_, subject_, sentence_);                     \
        cr_assert_eq(d_.n, 1, "another finding: %s", d_.list[1].sentence); \
    } while (0)
#define CASE(...) ((struct snapshot){ __VA_ARGS__ })

#endif
