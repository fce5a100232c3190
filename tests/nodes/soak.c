/* soak.c -- jobs that train on two to four hosts, with one random fault each. The job must succeed, or every remaining
 * node must name the cause, and no process may remain. scripts/soak.sh starts this program and counts the results.
 *
 *     SOAK_RUNS=200 SOAK_SEED=1 SOAK_DATA=DIR SOAK_TALLY=FILE build/tests/nodes/soak
 *
 * Run i has the seed SOAK_SEED + i. To repeat a run, use this seed and SOAK_RUNS=1: the faults come at the same times,
 * but the state of the machine may differ. The table of faults has the expected outcome: the job survives, or the cause
 * that nodes must name. The two sides of a partition cannot agree, so the victim may name any cause, but must end. */
#include "scene.h"

#include "base/clock.h"

#include <criterion/parameterized.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOMENTS_MS = 3500, LIMIT_MS = 60000, LEFT_MS = 10000, NODE_TEXT = 512 };

struct run {
    unsigned seed;
    uint64_t random;
    int nodes, victim;
    enum shape { STATIC, ELASTIC, SERVED, SHAPES } shape;
    const struct fault *fault;
    int after_ms;
    struct hosts *net;
    struct run_process *node[SCENE_NODES], *store;
    struct run_result result[SCENE_NODES];
    bool ok;
};

static const char *const shapes[SHAPES] = { "static", "elastic", "served" };

/* Draw a number by splitmix64, because adjacent seeds must give independent numbers. */
static unsigned draw(struct run *r, unsigned below)
{
    uint64_t z = r->random += 0x9e3779b97f4a7c15U;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return (unsigned)((z ^ (z >> 31)) % below);
}

/* --- faults ---------------------------------------------------------------------------------------------- */

static const struct host *victim(const struct run *r)
{
    return &r->net->host[r->victim];
}

static void do_nothing(struct run *r)
{
    (void)r;
}

static void do_kill_launcher(struct run *r)
{
    host_signal(victim(r), "ddprun", SIGKILL);
}

static void do_kill_guardian(struct run *r)
{
    run_signal(r->node[r->victim], SIGKILL);
}

static void do_kill_workers(struct run *r)
{
    host_signal(victim(r), "train", SIGKILL);
}

static void do_ctrl_c(struct run *r)
{
    run_signal(r->node[r->victim], SIGINT);
}

static void do_cable(struct run *r)
{
    host_cable(r->net, r->victim, false);
}

static void do_blip(struct run *r)
{
    host_cable(r->net, r->victim, false);
    poll(NULL, 0, 700);
    host_cable(r->net, r->victim, true);
}

static void do_drop_in(struct run *r)
{
    host_rules(victim(r), "add rule inet f in iifname eth0 drop");
}

static void do_drop_out(struct run *r)
{
    host_rules(victim(r), "add rule inet f out oifname eth0 drop");
}

static void do_lose_packets(struct run *r)
{
    host_rules(victim(r), "add rule inet f in iifname eth0 numgen random mod 100 < 3 drop");
}

static void do_freeze_shortly(struct run *r)
{
    host_signal(victim(r), NULL, SIGSTOP);
    poll(NULL, 0, 900);
    host_signal(victim(r), NULL, SIGCONT);
}

static void do_freeze(struct run *r)
{
    host_signal(victim(r), NULL, SIGSTOP);
    poll(NULL, 0, 6000);
    host_signal(victim(r), NULL, SIGCONT);
}

static void do_power(struct run *r)
{
    host_off(r->net, r->victim);
}

static void do_kill_store(struct run *r)
{
    if (r->store != NULL)
        run_signal(r->store, SIGKILL);
}

/* LOST: the other nodes lose the victim. Their messages name the victim, or the store that was lost with the victim. */
enum effect { HARMLESS, LOST, PARTED, STOPPED, FAILED, STORELESS };

static const struct fault {
    const char *name;
    void (*act)(struct run *r);
    enum effect effect;
} faults[] = {
    { "nothing", do_nothing, HARMLESS },
    { "kill_launcher", do_kill_launcher, LOST },
    { "kill_guardian", do_kill_guardian, LOST },
    { "kill_workers", do_kill_workers, FAILED },
    { "ctrl_c", do_ctrl_c, STOPPED },
    { "cable", do_cable, PARTED },
    { "blip", do_blip, HARMLESS },
    { "drop_in", do_drop_in, PARTED },
    { "drop_out", do_drop_out, PARTED },
    { "lose_packets", do_lose_packets, HARMLESS },
    { "freeze_shortly", do_freeze_shortly, HARMLESS },
    { "freeze", do_freeze, PARTED },
    { "power", do_power, LOST },
    { "kill_store", do_kill_store, STORELESS },
};

enum { FAULTS = sizeof(faults) / sizeof(faults[0]) };

/* --- one run --------------------------------------------------------------------------------------------- */

static void start_store(struct run *r)
{
    const char *argv[] = { bin("ddp-rendezvous"), "--listen", "10.9.0.1:29400", "--insecure", NULL };
    r->store = host_start(&r->net->host[0], argv, &(struct run_options){ .timeout_ms = 2 * LIMIT_MS });
    cr_assert(run_until_output(r->store, "listening", 20000));
}

/* Return the first node. In a job with a separate store, host 0 has the store and no workers. */
static int first_node(const struct run *r)
{
    return r->shape == SERVED ? 1 : 0;
}

static void start_node(struct run *r, int i)
{
    static const char *const env[] = {
        "OMP_NUM_THREADS=1", "CUDA_VISIBLE_DEVICES", "RANK", "MASTER_ADDR", "MASTER_PORT", "NO_COLOR", NULL
    };
    const int first = first_node(r), max = r->nodes - first, min = max > 2 ? 2 : max;
    char nodes[32], rank[32], where[64];
    snprintf(where, sizeof(where),
             r->shape == STATIC ? "--master_addr=10.9.0.1" : "--rdzv_endpoint=10.9.0.1:29400");
    snprintf(rank, sizeof(rank), r->shape == STATIC ? "--node_rank=%d" : "--rdzv_id=soak%d",
             r->shape == STATIC ? i : 1);
    snprintf(nodes, sizeof(nodes), r->shape == STATIC ? "--nnodes=%d" : "--nnodes=%d:%d",
             r->shape == STATIC ? max : min, max);
    const char *argv[] = { bin("ddprun"),
                           nodes,
                           rank,
                           where,
                           r->shape == STATIC ? "--rdzv_backend=static" : "--rdzv_backend=c10d",
                           "--nproc_per_node=1",
                           "--grace=2",
                           "--insecure",
                           "--timeout=9",
                           "--exit_barrier_timeout=15",
                           bin("train"),
                           "--data",
                           getenv("SOAK_DATA"),
                           "--batch=50",
                           "--epochs=1000",
                           "--limit_steps=300",
                           "--quiet",
                           NULL };
    r->node[i] = host_start(&r->net->host[i], argv,
                            &(struct run_options){ .env = env, .cwd = "/tmp", .timeout_ms = LIMIT_MS });
}

static void decide(struct run *r, unsigned seed)
{
    r->seed = seed;
    r->random = seed;
    r->nodes = 2 + (int)draw(r, 3);
    r->shape = (enum shape)draw(r, r->nodes > 2 ? SHAPES : SERVED);
    r->fault = &faults[draw(r, r->shape == SERVED ? FAULTS : FAULTS - 1)];
    r->victim = first_node(r) + (int)draw(r, (unsigned)(r->nodes - first_node(r)));
    r->after_ms = (int)draw(r, MOMENTS_MS);
    r->ok = true;
}

/* --- valid input ----------------------------------------------------------------------------------------- */

static void complain(struct run *r, const char *what, int node)
{
    r->ok = false;
    cr_expect(false, "seed %u (%s, %d hosts, %s of node%d after %d ms): node%d %s", r->seed, shapes[r->shape],
              r->nodes, r->fault->name, r->victim, r->after_ms, node, what);
}

static bool has_store(const struct run *r, int i)
{
    return r->shape != SERVED && i == 0;
}

__attribute__((format(printf, 3, 4))) static bool says(const struct run *r, int i, const char *format, ...)
{
    char text[64];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    return strstr(r->result[i].err, text) != NULL;
}

/* Return true if node `i` names the victim by its host, reports that the victim has never joined, or reports that too
 * few nodes remain. */
static bool names_victim(const struct run *r, int i)
{
    return says(r, i, "(node%d", r->victim) || says(r, i, "on node%d", r->victim) ||
           says(r, i, "node %d has", r->victim) || says(r, i, "TOO_FEW_NODES");
}

static bool names_store(const struct run *r, int i)
{
    return says(r, i, "lost the") || says(r, i, "10.9.0.1:29");
}

/* Return true if the messages name the exit of a rank as the first failure. This cause is wrong, because in these runs
 * a rank exits only as a consequence of the fault. */
static bool blames_a_rank(const struct run *r, int i)
{
    return says(r, i, "first: exit");
}

static bool names_cause(const struct run *r, int i)
{
    switch (r->fault->effect) {
    case HARMLESS:
        return false;
    case STORELESS:
        return names_store(r, i);
    case FAILED:
        return says(r, i, "on node%d", r->victim) && says(r, i, "SIGKILL");
    case STOPPED:
        return i == r->victim ? says(r, i, "SIGINT")
                              : names_victim(r, i) || (has_store(r, r->victim) && names_store(r, i));
    case LOST:
        return i == r->victim || names_victim(r, i) || (has_store(r, r->victim) && names_store(r, i));
    case PARTED: /* a node without a connection to the store has lost all other nodes */
        return i == r->victim || has_store(r, r->victim) || names_victim(r, i);
    }
    return false;
}

static void judge(struct run *r, int i)
{
    const struct run_result *end = &r->result[i];
    if (end->timed_out)
        complain(r, "does not end", i);
    else if (i == r->victim && (r->fault->effect == LOST))
        return;
    else if (end->exit_code != 0 && !names_cause(r, i))
        complain(r, "does not name the cause", i);
    else if (blames_a_rank(r, i) && r->fault->effect != PARTED)
        complain(r, "blames a rank", i);
}

/* Check the nodes that always had the same store: they must agree whether the job succeeded. */
static void judge_together(struct run *r)
{
    int good = 0, bad = 0;
    for (int i = first_node(r); i < r->nodes; i++)
        if (i != r->victim || r->fault->effect == HARMLESS)
            *(r->result[i].exit_code == 0 ? &good : &bad) += 1;
    if (good > 0 && bad > 0 && !has_store(r, r->victim) && r->fault->effect != STORELESS)
        complain(r, "and others do not agree on the end", r->victim);
}

static void judge_leftovers(struct run *r)
{
    char names[256];
    for (int i = first_node(r); i < r->nodes; i++)
        if (!r->net->host[i].off && host_left(&r->net->host[i], LEFT_MS, names, sizeof(names)) > 0) {
            fprintf(stderr, "left on node%d:%s\n", i, names);
            complain(r, "has something left", i);
        }
}

static void note(const struct run *r)
{
    const char *path = getenv("SOAK_TALLY");
    bool well = true;
    for (int i = first_node(r); i < r->nodes; i++)
        well = well && (r->result[i].exit_code == 0 || i == r->victim);
    FILE *f = path != NULL ? fopen(path, "ae") : NULL;
    if (f != NULL) {
        fprintf(f, "%s %s %u\n", r->fault->name, !r->ok ? "wrong" : well ? "well" : "cause", r->seed);
        fclose(f);
    }
}

/* --- all runs -------------------------------------------------------------------------------------------- */

static void play(struct run *r)
{
    r->net = hosts_open(r->nodes);
    if (r->shape == SERVED)
        start_store(r);
    for (int i = first_node(r); i < r->nodes; i++) {
        poll(NULL, 0, (int)draw(r, 300));
        start_node(r, i);
    }
    poll(NULL, 0, r->after_ms);
    r->fault->act(r);
    for (int i = first_node(r); i < r->nodes; i++)
        r->result[i] = run_wait(r->node[i]);
    for (int i = first_node(r); i < r->nodes; i++)
        judge(r, i);
    judge_together(r);
    judge_leftovers(r);
    note(r);
    if (!r->ok || getenv("SOAK_SHOW") != NULL)
        fprintf(stderr, "=== seed %u (%s, %d hosts, %s of node%d after %d ms)\n", r->seed, shapes[r->shape],
                r->nodes, r->fault->name, r->victim, r->after_ms);
    for (int i = first_node(r); i < r->nodes; i++) {
        if (!r->ok || getenv("SOAK_SHOW") != NULL)
            fprintf(stderr, "--- node%d, exit %d, signal %d\n%s", i, r->result[i].exit_code,
                    r->result[i].signal, r->result[i].err);
    }
    if (r->store != NULL) {
        run_signal(r->store, SIGKILL);
        run_wait(r->store);
    }
    hosts_close(r->net);
}

static unsigned number(const char *name, unsigned otherwise)
{
    const char *text = getenv(name);
    return text != NULL && *text != '\0' ? (unsigned)strtoul(text, NULL, 10) : otherwise;
}

static void free_seeds(struct criterion_test_params *params)
{
    cr_free(params->params);
}

ParameterizedTestParameters(soak, a_fault_is_survived_or_named)
{
    const unsigned runs = number("SOAK_RUNS", 20), seed = number("SOAK_SEED", 1);
    unsigned *seeds = cr_malloc(runs * sizeof(*seeds));
    for (unsigned i = 0; i < runs; i++)
        seeds[i] = seed + i;
    return cr_make_param_array(unsigned, seeds, runs, free_seeds);
}

ParameterizedTest(unsigned *seed, soak, a_fault_is_survived_or_named, .timeout = 200)
{
    struct run r = { 0 };
    decide(&r, *seed);
    play(&r);
}
