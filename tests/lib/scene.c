/* scene.c -- see scene.h. */
#include "scene.h"

#include "base/clock.h"

#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS_MAX = 64, TEXT = 4096, START_MS = 60000, LIFE_MS = 110000, LEFT_MS = 10000 };

/* --- starting -------------------------------------------------------------------------------------------- */

/* A command line from texts with spaces between words. */
struct words {
    const char *argv[WORDS_MAX + 1];
    char text[TEXT];
    size_t used;
    int n;
};

static void add(struct words *w, const char *format, ...)
{
    char *at = w->text + w->used, *save = NULL;
    va_list args;
    va_start(args, format);
    const int len = vsnprintf(at, sizeof(w->text) - w->used, format, args);
    va_end(args);
    cr_assert_lt(w->used + (size_t)len + 1, sizeof(w->text));
    w->used += (size_t)len + 1;
    for (char *word = strtok_r(at, " ", &save); word != NULL; word = strtok_r(NULL, " ", &save)) {
        cr_assert_lt(w->n, WORDS_MAX);
        w->argv[w->n++] = word;
    }
}

static int host_count(const struct scene *s)
{
    return s->hosts > 0 ? s->hosts : 2;
}

static const char *or_none(const char *text)
{
    return text != NULL ? text : "";
}

/* "train ..." is build/train, all other programs are the tests'. */
static void add_program(struct words *w, const char *program)
{
    const int name = (int)strcspn(program, " ");
    char path[128];
    snprintf(path, sizeof(path), "%s%.*s", strncmp(program, "train ", 6) == 0 ? "" : "tests/prog/", name,
             program);
    add(w, "%s%s", bin(path), program + name);
}

void scene_start(struct play *play, int i, const char *more_options)
{
    static const char *const env[] = { "OMP_NUM_THREADS=1", "CUDA_VISIBLE_DEVICES", "NO_COLOR", "RANK",
                                       "MASTER_ADDR",       "MASTER_PORT",          NULL };
    const struct scene *s = play->scene;
    struct words w = { .n = 0 };
    add(&w, "%s", s->node[i].ddprun != NULL ? s->node[i].ddprun : bin("ddprun"));
    if (!s->elastic)
        add(&w, "--nnodes=%d --node_rank=%d --master_addr=%s", host_count(s), i, play->net->host[0].addr);
    add(&w, "--nproc_per_node=2 --grace=2 %s %s %s", or_none(s->options), or_none(s->node[i].options),
        or_none(more_options));
    const char *program = s->node[i].program != NULL ? s->node[i].program : s->program;
    add_program(&w, program != NULL ? program : "worker say:up forever");
    w.argv[w.n] = NULL;
    play->node[i] = host_start(&play->net->host[i], w.argv,
                               &(struct run_options){ .env = env, .cwd = "/tmp", .timeout_ms = LIFE_MS });
    cr_assert_not_null(play->node[i]);
}

/* In the order in which they shall come. */
static void start_all(struct play *play)
{
    const struct scene *s = play->scene;
    bool started[SCENE_NODES] = { false };
    int now_ms = 0;
    for (int k = 0; k < host_count(s); k++) {
        int next = -1;
        for (int i = 0; i < host_count(s); i++)
            if (!started[i] && (next < 0 || s->node[i].late_ms < s->node[next].late_ms))
                next = i;
        started[next] = true;
        if (s->node[next].by_hand)
            continue;
        poll(NULL, 0, s->node[next].late_ms - now_ms);
        now_ms = s->node[next].late_ms;
        scene_start(play, next, NULL);
    }
}

/* --- looking --------------------------------------------------------------------------------------------- */

/* The next of the texts between bars; false at the end. */
static bool next_text(const char **texts, char text[256])
{
    const size_t len = strcspn(or_none(*texts), "|");
    if (len == 0)
        return false;
    snprintf(text, 256, "%.*s", (int)len, *texts);
    *texts += len + ((*texts)[len] == '|');
    return true;
}

static int left_ms(uint64_t until_ms)
{
    const uint64_t now_ms = clock_ms();
    return until_ms > now_ms ? (int)(until_ms - now_ms) : 1;
}

static const char *all_must_say(const struct scene *s, int i)
{
    return s->node[i].exit != KILLED && !s->node[i].silent_on ? s->says : NULL;
}

static uint64_t limit_ms(const struct scene *s, int i)
{
    const int given_ms = s->node[i].within_ms > 0 ? s->node[i].within_ms : s->within_ms;
    return (uint64_t)(given_ms > 0 ? given_ms : START_MS);
}

static void wait_until_said(struct play *play)
{
    const struct scene *s = play->scene;
    char text[256];
    for (int i = 0; i < host_count(s); i++) {
        if (play->node[i] == NULL)
            continue;
        const uint64_t until_ms = play->fault_ms + limit_ms(s, i);
        for (const char *texts = all_must_say(s, i); next_text(&texts, text);)
            cr_expect(run_until_error(play->node[i], text, left_ms(until_ms)),
                      "%s: node %d has not said '%s' in time", s->name, i, text);
        for (const char *texts = s->node[i].says; next_text(&texts, text);)
            cr_expect(run_until_error(play->node[i], text, left_ms(until_ms)),
                      "%s: node %d has not said '%s' in time", s->name, i, text);
    }
}

/* Each text behind the one before it. */
static void expect_in_order(const struct scene *s, int i, const char *texts, const char *said)
{
    const char *at = said;
    for (char text[256]; next_text(&texts, text);) {
        const char *found = strstr(at, text);
        cr_expect(found != NULL, "%s: node %d does not say '%s'%s", s->name, i, text,
                  strstr(said, text) != NULL ? " where it should" : "");
        at = found != NULL ? found + 1 : at;
    }
}

static bool says_all(const char *texts, const char *said)
{
    for (char text[256]; next_text(&texts, text); said++)
        if ((said = strstr(said, text)) == NULL)
            return false;
    return true;
}

void scene_expect_why(struct play *play, int i, const char *store, const char *texts)
{
    const char *argv[] = { bin("ddpctl"), "--addr", store, "why", NULL };
    const uint64_t until_ms = clock_ms() + CONNECTIONS;
    for (;;) {
        struct run_result r = host_run(&play->net->host[i], argv);
        const bool ok = says_all(texts, r.out), over = clock_ms() > until_ms;
        cr_expect(ok || !over, "%s: ddpctl why on node %d does not say '%s':\n%s%s", play->scene->name, i,
                  texts, r.out, r.err);
        run_free(&r);
        if (ok || over)
            return;
        poll(NULL, 0, 100);
    }
}

static bool code_is(int exit_code, int expected)
{
    return expected == ANY || (expected == ENDED ? exit_code != 0 : exit_code == expected);
}

static void expect_end(struct play *play, int i)
{
    const struct scene *s = play->scene;
    const struct scene_node *n = &s->node[i];
    char text[256];
    struct run_result r = run_wait(play->node[i]);
    play->node[i] = NULL;
    cr_expect(!r.timed_out, "%s: node %d does not end", s->name, i);
    cr_expect(code_is(r.exit_code, n->exit), "%s: node %d ends with %d, signal %d, and not with %d", s->name,
              i, r.exit_code, r.signal, n->exit);
    expect_in_order(s, i, all_must_say(s, i), r.err);
    expect_in_order(s, i, n->says, r.err);
    expect_in_order(s, i, n->ends, r.err);
    expect_in_order(s, i, n->prints, r.out);
    for (const char *texts = s->never; next_text(&texts, text);)
        cr_expect(strstr(r.err, text) == NULL, "%s: node %d says '%s'", s->name, i, text);
    fprintf(stderr, "--- %s: node %d, exit %d, signal %d\n%s%s", s->name, i, r.exit_code, r.signal,
            getenv("SCENE_OUT") != NULL ? r.out : "", r.err);
    run_free(&r);
}

static void expect_nobody(struct play *play)
{
    char names[256];
    for (int i = 0; i < host_count(play->scene); i++)
        if (!play->net->host[i].off)
            cr_expect_eq(host_left(&play->net->host[i], LEFT_MS, names, sizeof(names)), 0,
                         "%s: left on node %d:%s", play->scene->name, i, names);
}

void scene_play(const struct scene *scene)
{
    struct play play = { .scene = scene, .net = hosts_open_as(scene->net, host_count(scene)) };
    if (scene->before != NULL)
        scene->before(&play);
    play.fault_ms = clock_ms();
    start_all(&play);
    for (int i = 0; scene->until != NULL && i < host_count(scene); i++)
        cr_expect(play.node[i] == NULL || run_until_output(play.node[i], scene->until, START_MS),
                  "%s: node %d does not print '%s'", scene->name, i, scene->until);
    if (scene->fault != NULL) {
        play.fault_ms = clock_ms();
        scene->fault(&play);
    }
    wait_until_said(&play);
    if (scene->after != NULL)
        scene->after(&play);
    for (int i = 0; i < host_count(scene); i++)
        if (play.node[i] != NULL)
            expect_end(&play, i);
    if (play.other != NULL) {
        run_signal(play.other, SIGKILL);
        struct run_result r = run_wait(play.other);
        run_free(&r);
    }
    expect_nobody(&play);
    hosts_close(play.net);
}

/* --- faults ---------------------------------------------------------------------------------------------- */

static const struct host *victim(struct play *play)
{
    return &play->net->host[play->scene->victim];
}

void fault_kill_launcher(struct play *play)
{
    host_signal(victim(play), "ddprun", SIGKILL);
}

void fault_cable(struct play *play)
{
    host_cable(play->net, play->scene->victim, false);
}

void fault_freeze(struct play *play)
{
    host_signal(victim(play), NULL, SIGSTOP);
}

void fault_power(struct play *play)
{
    host_off(play->net, play->scene->victim);
}

void fault_ctrl_c(struct play *play)
{
    run_signal(play->node[play->scene->victim], SIGINT);
}

void after_stop_all(struct play *play)
{
    for (int i = 0; i < host_count(play->scene); i++)
        if (play->node[i] != NULL)
            run_signal(play->node[i], SIGTERM);
}

void after_heal(struct play *play)
{
    for (int i = 0; i < host_count(play->scene); i++) {
        if (play->net->host[i].off)
            continue;
        host_cable(play->net, i, true);
        host_heal(&play->net->host[i]);
        host_signal(&play->net->host[i], NULL, SIGCONT);
    }
}

/* --- scene train ------------------------------------------------------------------------------------------ */

void train_make_data(struct play *play)
{
    const char *name = play->scene->name;
    cr_assert(host_sh(NULL,
                      "rm -rf " TRAIN_PLACE "%s; %s --out " TRAIN_PLACE
                      "%s --samples 10000 --test_samples 100 >/dev/null",
                      name, bin("make-data"), name));
}

void train_remove_data(struct play *play)
{
    host_sh(NULL, "rm -rf " TRAIN_PLACE "%s", play->scene->name);
}

void train_expect_one_hosts_bits(struct play *play)
{
    const char *name = play->scene->name;
    for (int i = 0; i < 2; i++) {
        struct run_result r = run_wait(play->node[i]);
        play->node[i] = NULL;
        cr_expect_eq(r.exit_code, 0, "node %d ends with %d: %s", i, r.exit_code, r.err);
        run_free(&r);
    }
    cr_expect(host_sh(NULL,
                      "cd " TRAIN_PLACE "%s && mv bits two && %s --nproc_per_node=2 %s --data . --batch=50 "
                      "--limit_steps=10 --quiet --dump_gradients bits 2>&1 && cmp bits two",
                      name, bin("ddprun"), bin("train")),
              "the gradients differ");
    train_remove_data(play);
}
