/* plan.c -- see plan.h. This module resolves no host names and opens no files, so --dry_run and tests get the same
 * plan as a real start. The address and the timeouts of the rendezvous depend only on the options. */
#include "plan/plan.h"

#include "base/text.h"
#include "base/limits.h"
#include "plan/worker.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RANK0_SWITCH "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"

enum { STATIC_JOIN_MS = 900000, ELASTIC_JOIN_MS = 600000, LAST_CALL_MS = 30000, KEEP_ALIVE_ATTEMPTS = 3 };
enum { PLAN_RANKS_WORDS = 160 };

bool plan_has_endpoint(const struct cli *cli)
{
    return cli->endpoint.host[0] != '\0' && !cli->standalone;
}

void plan_choose_place(struct plan_meeting *m, const struct cli *cli)
{
    const bool endpoint = plan_has_endpoint(cli), port_given = cli_gives(cli, OPT_MASTER_PORT);
    m->host = endpoint ? cli->endpoint.host : cli->master_addr;
    if (endpoint && cli->endpoint.port >= 0)
        m->port = cli->endpoint.port;
    else if (port_given || !endpoint || !m->elastic)
        m->port = cli->standalone && !port_given ? 0 : cli->master_port;
    else
        m->port = RDZV_DEFAULT_PORT;
    m->elsewhere = endpoint || m->nnodes_max > 1;
    m->port_may_change = !port_given && !m->elsewhere;
}

/* Choose the timeouts. The time to join comes from --timeout, from --rdzv_conf, or from torchrun's default. `join_knob`
 * names the option that sets this time. Without --node_timeout, --rdzv_conf can set the node timeout: the interval of
 * heartbeats, multiplied by the number of heartbeats that may fail. The wait for more nodes comes from --rdzv_conf, or
 * from a default. With port 0 this default is 0, because no other node can find the store. */
static void choose_times(struct plan_meeting *m, const struct cli *cli)
{
    const struct cli_rdzv_conf *conf = &cli->rdzv_conf;
    const int attempts = conf->keep_alive_attempts > 0 ? conf->keep_alive_attempts : KEEP_ALIVE_ATTEMPTS;
    m->join_ms = m->elastic ? ELASTIC_JOIN_MS : STATIC_JOIN_MS;
    m->join_knob = "--timeout";
    if (cli->timeout_ms > 0) {
        m->join_ms = cli->timeout_ms;
    } else if (conf->join_ms > 0) {
        m->join_ms = conf->join_ms;
        m->join_knob = m->elastic ? "--rdzv_conf join_timeout" : "--rdzv_conf timeout";
    }
    m->last_call_ms = conf->last_call_ms > 0 ? conf->last_call_ms : m->port == 0 ? 0 : LAST_CALL_MS;
    m->node_timeout_ms = cli->node_timeout_ms;
    if (conf->keep_alive_ms > 0 && !cli_gives(cli, OPT_NODE_TIMEOUT))
        m->node_timeout_ms = conf->keep_alive_ms * (uint64_t)attempts;
}

/* Copy the program's name without its directory, because the directory may differ between the nodes of a job. A
 * long name is cut in the same way on every node. */
static void name_program(const struct cli *cli, char text[PLAN_PROGRAM_SIZE])
{
    const char *slash = cli->program != NULL ? strrchr(cli->program, '/') : NULL;
    const char *name = slash != NULL ? slash + 1 : cli->program;
    text_copy(text, PLAN_PROGRAM_SIZE, name != NULL ? name : "");
}

/* Guess the ranks before the first round. The ranks of a single node are certain. In a static job, assume that every
 * node has the same number of workers. In an elastic job, assume that this node is the first node. */
static void guess(struct plan *plan)
{
    const struct plan_meeting *m = &plan->meeting;
    plan->nnodes = m->nnodes_max;
    plan->node_rank = m->node_rank > 0 ? m->node_rank : 0;
    plan->world_size = plan->nproc * plan->nnodes;
    plan->settled = m->nnodes_max == 1;
    plan->master_port = m->port;
    snprintf(plan->master_addr, sizeof(plan->master_addr), "%s", m->host);
}

/* Return the default job id. A job of several nodes gets "none", as in torchrun, because all nodes need the same id.
 * A job of one node gets a random id. If ddprun was started as torchrun with a port, an endpoint or the backend c10d,
 * the id is "none" as well. */
static const char *default_job_id(const struct plan *plan)
{
    const struct cli *cli = plan->cli;
    const bool named_place =
        cli_gives(cli, OPT_MASTER_PORT) || cli_gives(cli, OPT_RDZV_ENDPOINT) || cli->backend == BACKEND_C10D;
    if (plan->meeting.nnodes_max > 1 || (cli->torchrun && named_place && !cli->standalone))
        return "none";
    return plan->facts->nonce;
}

/* Return true if the variable RANK0_SWITCH requires that rank 0 hosts the workers' store. This variable of torchrun is
 * often set for a whole cluster. So ignore the variable for programs that cannot use PyTorch. */
static bool asks_for_rank0(const struct plan *plan)
{
    const struct cli *cli = plan->cli;
    const char *disabled = plan_user_value(plan, RANK0_SWITCH);
    return !cli_gives(cli, OPT_TORCH_STORE) && disabled != NULL && strcmp(disabled, "1") == 0 &&
           program_python(cli, plan->facts->python) != NULL;
}

/* Choose the store of the workers before the start. Some PyTorch versions reject the launcher's store without sending a
 * byte, and the launcher could not detect this later. */
static void choose_worker_store(struct plan *plan)
{
    const struct torch_version *torch = plan->facts->torch;
    const bool refuses = plan->cli->torch_store == TORCH_STORE_AUTO && torch != NULL && torch->refuses_stores;
    const bool asked = asks_for_rank0(plan);
    plan->rank0_store = plan->cli->torch_store == TORCH_STORE_RANK0 || asked || refuses;
    if (asked && !refuses)
        plan_note(plan,
                  "%s=1 is set, so rank 0 hosts a store for the workers; pass --torch_store=launcher to use "
                  "ddprun's store",
                  RANK0_SWITCH);
    if (!refuses)
        return;
    plan_note(
        plan,
        "PyTorch %s in %s was built without libuv and rejects the launcher's store, so rank 0 hosts a store "
        "for the workers",
        torch->version, torch->dir);
}

/* Decide everything about the rendezvous: address, port, timeouts, store and the job's name. The defaults are
 * torchrun's:
 *
 *     nodes       backend   time to join                        ranks
 *     1           -         -                                   known
 *     N           static    --timeout, --rdzv_conf or 900 s     follow from --node_rank
 *     MIN:MAX     c10d      --timeout, --rdzv_conf or 600 s     assigned by the rendezvous
 *
 * --rdzv_endpoint replaces the address. A port in --rdzv_endpoint replaces the port, too. The default port is 29500.
 * For an elastic job with a --rdzv_endpoint without a port, the default port is 29400. With --standalone, the default
 * port is 0, which means any free port. */
static bool plan_meet(struct plan *plan)
{
    const struct cli *cli = plan->cli;
    struct plan_meeting *m = &plan->meeting;
    const struct cli_rdzv_conf *conf = &cli->rdzv_conf;
    m->nnodes_min = cli->nnodes.min;
    m->nnodes_max = cli->nnodes.max;
    m->elastic = cli_is_elastic(cli);
    m->node_rank = m->nnodes_max == 1 ? 0 : m->elastic ? -1 : cli->node_rank;
    m->host_store = cli->host_store != HOST_STORE_AUTO ? cli->host_store : conf->is_host;
    plan_choose_place(m, cli);
    choose_times(m, cli);
    plan->encrypt = cli->encrypt && m->elsewhere;
    name_program(cli, m->program);
    choose_worker_store(plan);
    guess(plan);
    plan->job = plan_text_of("%s", cli->job != NULL ? cli->job : default_job_id(plan));
    return plan->job != NULL;
}

/* --- the GPU of a worker -------------------------------------------------------------------------------- */

/* Return the name of the variable that lists the GPUs for --virtual_local_rank. As in torchrun, this variable is
 * HIP_VISIBLE_DEVICES if HIP_VISIBLE_DEVICES is set and not empty, and CUDA_VISIBLE_DEVICES otherwise. */
static const char *parent_variable(const struct plan *plan)
{
    static const char name[] = "HIP_VISIBLE_DEVICES";
    const char *hip = env_find(plan->facts->environ_block, name);
    return hip != NULL && *hip != '\0' ? name : "CUDA_VISIBLE_DEVICES";
}

/* Return the list of GPUs in ddprun's environment, for --virtual_local_rank. Return NULL if the variable of
 * parent_variable() is not set. */
static const char *parent_gpus(const struct plan *plan)
{
    return env_find(plan->facts->environ_block, parent_variable(plan));
}

/* Return how many entries parent_gpus() has. */
static int parent_entries(const struct plan *plan)
{
    const char *list = parent_gpus(plan);
    int entries = list != NULL;
    for (; list != NULL && *list != '\0'; list++)
        entries += *list == ',';
    return entries;
}

/* Return the index of a worker's GPU among the visible GPUs. A task uses the GPU of its local rank, because all tasks
 * of a node usually see the same GPUs. With --virtual_local_rank, a task that sees only one GPU uses this GPU. */
static int gpu_index(const struct plan *plan, int local_rank)
{
    const struct cli *cli = plan->cli;
    const int index = cli->per_task ? cli->task.local_rank : local_rank;
    if (cli->per_task && cli->virtual_local_rank &&
        (parent_entries(plan) == 1 || (parent_gpus(plan) == NULL && plan->gpus->n == 1)))
        return 0;
    return cli->share_gpu && plan->gpus->n > 0 ? index % plan->gpus->n : index;
}

/* --- notes for the user, which do not stop the job -------------------------------------------------------- */

#define FILTERS_NEED "only lines that --tee writes to log files can be filtered; add --log_dir and --tee"

/* Add a note that an option on the command line has no effect. PET_ variables may be a site's defaults and get no
 * note. */
static void note_idle(struct plan *plan, enum cli_option option, const char *name, const char *why)
{
    if (plan->cli->origin[option] == FROM_COMMAND_LINE)
        plan_note(plan, "--%s has no effect: %s", name, why);
}

static void note_encrypt(struct plan *plan)
{
    if (!plan->encrypt && plan->cli->encrypt)
        note_idle(plan, OPT_ENCRYPT, "encrypt",
                  "the job has one node, so all its connections stay on this host");
}

static void note_files(struct plan *plan)
{
    if (!plan_any_file(plan))
        note_idle(plan, OPT_LOG_ROTATE, "log_rotate", "there are no log files; set --log_dir or --log_file");
    if (plan->log_root == NULL || !cli_gives(plan->cli, OPT_TEE)) {
        note_idle(plan, OPT_STDOUT_FILTERS, "duplicate_stdout_filters", FILTERS_NEED);
        note_idle(plan, OPT_STDERR_FILTERS, "duplicate_stderr_filters", FILTERS_NEED);
    }
    if (!plan->cli->one_console)
        note_idle(plan, OPT_COLLECT_LOGS, "collect_logs",
                  "--hosts is not set, so each node keeps its own log files");
    if (plan->cli->log_file == NULL)
        note_idle(plan, OPT_LOG_MERGE, "log_merge", "--log_file is not set");
}

/* Return true if this node has no local rank `highest`, which is the highest rank that --OPTION names. In this case,
 * write a sentence about this rank to `words`. */
static bool plan_lacks_rank(const struct plan *plan, const char *option, int highest,
                            char words[PLAN_RANKS_WORDS])
{
    const int workers = plan->cli->per_task ? plan->cli->task.local_world_size : plan->nproc;
    if (highest < workers)
        return false;
    snprintf(words, PLAN_RANKS_WORDS,
             "--%s: local rank %d does not exist: this node has %d worker%s; list only ranks below %d",
             option, highest, workers, workers == 1 ? "" : "s", workers);
    return true;
}

/* Add a note for each option with a local rank that does not exist on this node. As in torchrun, do not reject such an
 * option, because nodes with different numbers of workers may have the same command line. */
static void note_ranks(struct plan *plan)
{
    const struct {
        const char *option;
        int highest;
    } named[] = { { "tee", std_map_highest(&plan->cli->tee) },
                  { "redirects", std_map_highest(&plan->cli->redirects) },
                  { "local_ranks_filter", rank_set_highest(&plan->cli->console_ranks) } };
    char words[PLAN_RANKS_WORDS];
    for (size_t i = 0; i < sizeof(named) / sizeof(named[0]); i++)
        if (plan_lacks_rank(plan, named[i].option, named[i].highest, words))
            plan_note(plan, "%s", words);
}

/* Add one note that lists the options of torchrun that ddprun accepts but does not use. */
static void note_ignored(struct plan *plan)
{
    const struct cli *cli = plan->cli;
    const struct {
        enum cli_option option;
        const char *text;
        bool ignored;
    } options[] = {
        { OPT_START_METHOD, "--start_method (every worker is a new process)",
          strcmp(cli->start_method, "spawn") != 0 },
        { OPT_MONITOR_INTERVAL, "--monitor_interval (ddprun detects each exit at once)", true },
        { OPT_EVENT_LOG_HANDLER, "--event_log_handler (only --events and --json write events)",
          strcmp(cli->event_log_handler, "console") == 0 },
    };
    char names[256] = "";
    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++)
        if (cli->origin[options[i].option] == FROM_COMMAND_LINE && options[i].ignored) {
            strcat(names, names[0] != '\0' ? ", " : "");
            strcat(names, options[i].text);
        }
    if (names[0] != '\0')
        plan_note(plan, "accepted without effect: %s", names);
}

static void note_nodes(struct plan *plan)
{
    const struct cli_rdzv_conf *conf = &plan->cli->rdzv_conf;
    if (plan->meeting.elastic)
        note_idle(plan, OPT_NODE_RANK, "node_rank",
                  "the rendezvous assigns the node ranks of an elastic job");
    else
        note_idle(plan, OPT_GROW, "grow", "only an elastic job (--nnodes=MIN:MAX) can grow");
    if (plan->cli->standalone)
        note_idle(plan, OPT_RDZV_ENDPOINT, "rdzv_endpoint", "a --standalone job uses only this node");
    if (conf->idle != NULL)
        plan_note(plan, "%s in --rdzv_conf has no effect: %s", conf->idle, conf->idle_why);
    if (conf->unknown[0] != '\0')
        plan_note(plan, "'%s' in --rdzv_conf has no effect: unknown key; check its spelling", conf->unknown);
}

/* Add a note about a PET_ variable that has no effect. Either ddprun has no option of this name, as for PET_STRATEGY,
 * or the option works only on the command line. */
static void note_idle_default(struct plan *plan)
{
    const char *option;
    const char *entry = cli_idle_pet(plan->facts->environ_block, &option);
    const int len = entry != NULL ? (int)strcspn(entry, "=") : 0;
    if (entry != NULL && option != NULL)
        plan_note(plan, "%.*s has no effect: --%s works only on the command line", len, entry, option);
    else if (entry != NULL)
        plan_note(plan, "%.*s has no effect: ddprun has no option of this name", len, entry);
}

/* Add a note that the ranks of a dry run are a guess. */
static void note_guess(struct plan *plan)
{
    if (plan->settled || !plan->cli->dry_run)
        return;
    if (plan->meeting.elastic)
        plan_note(plan,
                  "the rendezvous assigns ranks and world sizes; this plan shows the values of node %d of %d",
                  plan->node_rank, plan->nnodes);
    else
        plan_note(plan, "the ranks shown are correct if each of the %d nodes has %d worker%s",
                  plan->meeting.nnodes_max, plan->nproc, plan->nproc == 1 ? "" : "s");
}

/* Add the notes that scheduler.c has stored for the user. If scheduler.c has found that the user started the job in a
 * wrong way, also add this finding. If another task prints the finding (`mine` is false), do not add the finding. */
static void note_scheduler(struct plan *plan)
{
    const struct scheduler *s = plan->facts->scheduler;
    for (int i = 0; s != NULL && i < SCHEDULER_NOTES_MAX && s->notes[i][0] != '\0'; i++)
        plan_note(plan, "%s", s->notes[i]);
    if (s != NULL && s->finding.found.code != FINDING_NONE && s->finding.mine)
        plan_note(plan, "%s; %s [%s]", s->finding.found.sentence, s->finding.found.advice,
                  finding_code_name(s->finding.found.code));
}

/* Add a note if a task sees too few GPUs for its LOCAL_RANK. A common mistake is that each task sees only its own GPU.
 * Inside the task this GPU has the number 0, but LOCAL_RANK may be 3. */
static void note_task_gpu(struct plan *plan)
{
    const int local = plan->cli->task.local_rank;
    if (plan->cli->per_task && plan->gpus->n > 0 && gpu_index(plan, 0) >= plan->gpus->n)
        plan_note(plan,
                  "this task sees %d GPU%s, but LOCAL_RANK is %d: a program fails if it uses LOCAL_RANK as "
                  "the index of the GPU; let each task see all GPUs of its node (Slurm: --gpus-per-node "
                  "instead of --gpus-per-task)",
                  plan->gpus->n, plan->gpus->n == 1 ? "" : "s", local);
}

/* Add a note for each option without effect. Do not reject such an option, because a script may always pass the same
 * options. */
static void plan_note_idle(struct plan *plan)
{
    note_encrypt(plan);
    note_files(plan);
    note_ranks(plan);
    note_ignored(plan);
    note_nodes(plan);
    note_idle_default(plan);
    note_scheduler(plan);
    note_task_gpu(plan);
    note_guess(plan);
}

bool plan_uses_munge(const struct plan *plan, const char *address)
{
    const struct scheduler *scheduler = plan->facts->scheduler;
    return plan->secret == NULL && !plan->cli->insecure && plan->meeting.nnodes_max > 1 &&
           scheduler != NULL && scheduler->kind >= 0 && !endpoint_is_loopback(address);
}

bool plan_asks_for_key(const struct plan *plan)
{
    return plan->encrypt && plan_uses_munge(plan, "");
}

/* Return DDP_ERR_ARG if --encrypt has no secret, because the key is derived from the secret. */
static ddp_status check_key(const struct plan *plan, struct ddp_err *err)
{
    if (!plan->encrypt || plan->cli->secret_file != NULL || plan_asks_for_key(plan))
        return DDP_OK;
    return ddp_fail(err, DDP_ERR_ARG,
                    "--encrypt: no secret; add --secret_file=FILE ('ddprun --make_secret FILE' makes one)");
}

void plan_free(struct plan *plan)
{
    for (int r = 0; plan->workers != NULL && r < plan->nproc; r++) {
        struct plan_worker *w = &plan->workers[r];
        free(w->argv);
        free(w->visible);
        rank_set_free(&w->cpus);
        plan_output_free(w);
    }
    for (int i = 0; i < PLAN_NOTES_MAX; i++)
        free(plan->notes[i]);
    free(plan->credential);
    env_base_free(&plan->env);
    free(plan->filtered[0]);
    free(plan->filtered[1]);
    free(plan->stop_signals);
    free(plan->timer_file);
    free(plan->flight);
    free(plan->gpus);
    free(plan->workers);
    free(plan->log_root);
    free(plan->job);
    *plan = (struct plan){ 0 };
}

/* --- questions about a plan -------------------------------------------------------------------------------- */

/* Return true if a worker reads ddprun's stdin. --stdin names global ranks. */
bool plan_gets_input(const struct plan *plan, int local_rank)
{
    const struct cli_input *input = &plan->cli->input;
    return input->all || rank_set_has(&input->ranks, plan->workers[local_rank].rank);
}

/* Return true if colours are allowed. By the rule of no-color.org, any NO_COLOR except "" forbids colours. */
bool plan_wants_colour(const struct plan *plan)
{
    const char *term = env_find(plan->facts->environ_block, "TERM");
    const char *no_color = env_find(plan->facts->environ_block, "NO_COLOR");
    return (term == NULL || strcmp(term, "dumb") != 0) && (no_color == NULL || *no_color == '\0');
}

void plan_offer_port(struct plan *plan, int port)
{
    plan->offered_port = port;
    if (plan->settled)
        plan->rank0_port = port;
}

struct plan_round plan_same_round(const struct plan *plan, int attempt)
{
    return (struct plan_round){ .attempt = attempt,
                                .restarts = attempt,
                                .node_rank = plan->node_rank,
                                .nnodes = plan->nnodes,
                                .first_rank = plan->node_rank * plan->nproc,
                                .world_size = plan->world_size,
                                .role_rank = plan->node_rank * plan->nproc,
                                .role_size = plan->world_size,
                                .rank0_port = plan->rank0_port };
}

/* --- GPUs ------------------------------------------------------------------------------------------------- */

/* ddprun parses CUDA_VISIBLE_DEVICES exactly as CUDA does, to plan the GPU of each worker. On a machine with 4
 * GPUs:
 *
 *     value         visible
 *     not set       0 1 2 3
 *     3,0           3 0        LOCAL_RANK 0 gets GPU 3
 *     1,9,0         1          the first entry without a GPU ends the list
 *     0,-1,2        0          -1 names no GPU
 *     1,1           none       a repeated entry makes the whole list empty
 *     1gpu,2        1 2        only the number at the start of an entry counts
 *     GPU-8f,1      GPU-8f     the first entry of another kind (number, GPU-<uuid>, MIG-<uuid>) ends the list */

/* A value of CUDA_VISIBLE_DEVICES during parsing. */
struct entries {
    const char *at;
    const char *kind; /* beginning of the names: "GPU-", "MIG-", or "" for numbers */
};

/* List all GPUs as "0", "1" ..., which is CUDA's default. */
static void all_gpus(struct gpu_list *list)
{
    list->n = list->physical < GPUS_MAX ? list->physical : GPUS_MAX;
    for (int i = 0; i < list->n; i++)
        snprintf(list->names[i], GPU_NAME_MAX, "%d", i);
}

/* Copy the next entry, without the blanks around it. Return false at the end of the list. */
static bool next_entry(struct entries *e, char out[GPU_NAME_MAX])
{
    if (e->at == NULL)
        return false;
    size_t len = strcspn(e->at, ",");
    const char *begin = e->at, *end = e->at + len;
    e->at = *end == ',' ? end + 1 : NULL;
    while (begin < end && isspace((unsigned char)*begin))
        begin++;
    while (end > begin && isspace((unsigned char)end[-1]))
        end--;
    snprintf(out, GPU_NAME_MAX, "%.*s", (int)(end - begin), begin);
    return true;
}

/* Replace an entry by the number at its beginning: "01gpu" -> "1". Return false if the entry has no number or no
 * GPU has this number. */
static bool number_entry(struct gpu_list *list, char entry[GPU_NAME_MAX])
{
    char *end;
    long index = strtol(entry, &end, 10);
    if (end == entry || index < 0)
        return false;
    if (index >= list->physical) {
        snprintf(list->note, sizeof(list->note),
                 "CUDA_VISIBLE_DEVICES lists GPU %ld, but this machine has %d GPU%s, numbered from 0; "
                 "CUDA ignores this entry and all later entries",
                 index, list->physical, list->physical == 1 ? "" : "s");
        return false;
    }
    snprintf(entry, GPU_NAME_MAX, "%ld", index);
    return true;
}

/* Return true if the list contains `entry`. */
static bool is_listed(const struct gpu_list *list, const char *entry)
{
    for (int i = 0; i < list->n; i++)
        if (strcmp(list->names[i], entry) == 0)
            return true;
    return false;
}

/* List the GPUs of CUDA_VISIBLE_DEVICES. UUIDs are not checked, because only the driver knows them. */
static void named_gpus(struct gpu_list *list, const char *visible)
{
    struct entries e = { .at = visible, .kind = "" };
    char entry[GPU_NAME_MAX];
    if (strncmp(visible, "GPU-", 4) == 0)
        e.kind = "GPU-";
    else if (strncmp(visible, "MIG-", 4) == 0)
        e.kind = "MIG-";
    while (list->n < GPUS_MAX && next_entry(&e, entry)) {
        bool number = e.kind[0] == '\0';
        if (number ? !number_entry(list, entry) : strncmp(entry, e.kind, 4) != 0)
            return;
        if (is_listed(list, entry)) {
            snprintf(list->note, sizeof(list->note),
                     "CUDA_VISIBLE_DEVICES lists %.64s twice, so CUDA shows no GPU; remove one entry", entry);
            list->n = 0;
            return;
        }
        memcpy(list->names[list->n++], entry, GPU_NAME_MAX);
    }
}

/* List the visible GPUs. `visible` is CUDA_VISIBLE_DEVICES, or NULL if the variable is not set. The variable may name
 * GPUs in any order, by number, UUID or MIG id. `physical` is the number of GPUs in the machine. */
static void gpus_list(struct gpu_list *list, const char *visible, int physical)
{
    list->physical = physical;
    list->hidden = false;
    list->n = 0;
    list->note[0] = '\0'; /* `names` stays uninitialized (24 KB), because only n entries are read */
    if (visible == NULL) {
        all_gpus(list);
        return;
    }
    const char *first = visible + strspn(visible, " \t");
    list->hidden = first[0] == '\0' || first[0] == '-';
    if (!list->hidden && physical > 0)
        named_gpus(list, visible);
}

/* Return DDP_ERR_ARG if the number of workers exceeds the number of visible GPUs. */
static ddp_status check_number(const struct gpu_list *list, int count, struct ddp_err *err)
{
    if (list->physical == 0 || list->hidden || count <= list->n)
        return DDP_OK;
    if (list->n < list->physical)
        return ddp_fail(err, DDP_ERR_ARG,
                        "--nproc_per_node=%d: more workers than the %d GPU%s that CUDA_VISIBLE_DEVICES shows "
                        "(the machine has %d); set CUDA_VISIBLE_DEVICES=\"\" for a job on CPUs, or add "
                        "--share_gpu for a test",
                        count, list->n, list->n == 1 ? "" : "s", list->physical);
    return ddp_fail(err, DDP_ERR_ARG,
                    "--nproc_per_node=%d: more workers than the %d GPU%s of this machine; set "
                    "CUDA_VISIBLE_DEVICES=\"\" for a job on CPUs, or add --share_gpu for a test",
                    count, list->n, list->n == 1 ? "" : "s");
}

/* Explain why --nproc_per_node=gpu finds no GPU. */
static ddp_status no_gpu(const struct gpu_list *list, struct ddp_err *err)
{
    if (list->physical == 0)
        return ddp_fail(
            err, DDP_ERR_ARG,
            "--nproc_per_node=gpu: this machine has no GPU; use a number, or --nproc_per_node=cpu");
    return ddp_fail(
        err, DDP_ERR_ARG,
        "--nproc_per_node=gpu: CUDA_VISIBLE_DEVICES shows no GPU, although this machine has %d; correct "
        "this variable, or use --nproc_per_node=cpu",
        list->physical);
}

/* Compute the number of workers from --nproc_per_node (`want`) and the number of usable CPUs. Return DDP_ERR_ARG if
 * `want` exceeds the number of visible GPUs. Any number is allowed if there are no GPUs, if the GPUs are hidden (a job
 * on CPUs), or if `share` is true. */
static ddp_status gpus_workers(const struct gpu_list *list, struct cli_nproc want, bool share, int cpus,
                               int *nproc, struct ddp_err *err)
{
    int by_cpu = cpus > 0 ? cpus : 1;
    switch (want.kind) {
    case NPROC_DEFAULT:
        *nproc = list->n > 0 ? list->n : 1;
        return DDP_OK;
    case NPROC_AUTO:
        *nproc = list->n > 0 ? list->n : by_cpu;
        return DDP_OK;
    case NPROC_CPU:
        *nproc = by_cpu;
        return DDP_OK;
    case NPROC_GPU:
        *nproc = list->n;
        return list->n > 0 ? DDP_OK : no_gpu(list, err);
    case NPROC_NUMBER:
        break;
    }
    *nproc = want.count;
    return share ? DDP_OK : check_number(list, want.count, err);
}

/* Return the name of the GPU of worker `local_rank` of `nproc` workers, or NULL if the worker has no GPU. If `share` is
 * true, several workers get the same GPU. */
static const char *gpus_of_worker(const struct gpu_list *list, int local_rank, int nproc, bool share)
{
    if (share && list->n > 0)
        return list->names[local_rank % list->n];
    return nproc <= list->n ? list->names[local_rank] : NULL;
}

/* Return the name of the GPU for the scheduler's task `local_rank`, or NULL if the list has too few GPUs. */
static const char *gpus_of_task(const struct gpu_list *list, int local_rank)
{
    return local_rank < list->n ? list->names[local_rank] : NULL;
}

/* --- workers and the rendezvous ------------------------------------------------------------------------- */

/* Decide the number of workers. */
static ddp_status plan_workers(struct plan *plan, struct ddp_err *err)
{
    const struct plan_facts *facts = plan->facts;
    plan->gpus = malloc(sizeof(*plan->gpus));
    if (plan->gpus == NULL)
        return DDP_ERR_NOMEM;
    gpus_list(plan->gpus, plan_user_value(plan, "CUDA_VISIBLE_DEVICES"), facts->physical_gpus);
    if (plan->gpus->note[0] != '\0')
        plan_note(plan, "%s", plan->gpus->note);
    ddp_status status =
        gpus_workers(plan->gpus, plan->cli->nproc, plan->cli->share_gpu, facts->cpus, &plan->nproc, err);
    if (status != DDP_OK)
        return status;
    plan->workers = calloc((size_t)plan->nproc, sizeof(*plan->workers));
    return plan->workers != NULL ? DDP_OK : DDP_ERR_NOMEM;
}

/* --- output --------------------------------------------------------------------------------------------- */

/* Reject a rank in --stdin that does not exist, because its input would be lost. */
static ddp_status check_input(const struct plan *plan, struct ddp_err *err)
{
    char why[PLAN_RANKS_WORDS];
    return plan_lacks_rank(plan, "stdin", rank_set_highest(&plan->cli->input.ranks), why)
               ? ddp_fail(err, DDP_ERR_ARG, "%s", why)
               : DDP_OK;
}

/* Return true if other tasks of the scheduler may write to the same console. */
static bool shares_console(const struct plan *plan)
{
    const struct scheduler *s = plan->facts->scheduler;
    return s != NULL && s->tasks.known && s->tasks.tasks > 1 && !plan->cli->standalone;
}

static bool tees(const struct plan *plan)
{
    for (int r = 0; r < plan->nproc; r++)
        if (std_map_get(&plan->cli->tee, plan->workers[r].local_rank) != 0)
            return true;
    return false;
}

/* Return true if lines on the console need a prefix, usually because several workers write to the console. */
static bool needs_prefix(const struct plan *plan)
{
    int writers = 0;
    for (int r = 0; r < plan->nproc; r++)
        writers += plan->workers[r].out.console || plan->workers[r].err.console;
    if (plan->cli->prefix != PREFIX_AUTO)
        return plan->cli->prefix == PREFIX_ON;
    if (plan->cli->torchrun) /* torchrun adds a prefix only to the streams that --tee names */
        return tees(plan);
    return writers > 1 || (writers == 1 && shares_console(plan)) ||
           plan->cli->origin[OPT_PREFIX_TEMPLATE] == FROM_COMMAND_LINE ||
           plan->cli->origin[OPT_TIMESTAMPS] == FROM_COMMAND_LINE;
}

bool plan_stream_has_prefix(const struct plan *plan, int local_rank, int which)
{
    const bool tees_only = plan->cli->torchrun && plan->cli->prefix == PREFIX_AUTO;
    const int tee = std_map_get(&plan->cli->tee, plan->workers[local_rank].local_rank);
    return plan->prefix && (!tees_only || (tee & which) != 0);
}

/* Choose the prefix of lines: from the option, from torchrun's variable, or the default. Reject an invalid prefix
 * before the start. Otherwise only the logs would show the mistake. */
static ddp_status plan_prefix(struct plan *plan, struct ddp_err *err)
{
    const struct cli *cli = plan->cli;
    struct ddp_err why;
    const char *from = "--log_line_prefix_template", *template = cli->prefix_template;
    if (template == NULL) {
        from = "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE";
        template = env_find(plan->facts->environ_block, from);
    }
    if (template == NULL || *template == '\0')
        template = cli->torchrun ? "[${role_name}${local_rank}]:" : "[${rank}] ";
    ddp_status status = cli->timestamps ? prefix_add(&plan->line_prefix, "${time} ", &why) : DDP_OK;
    if (status == DDP_OK)
        status = prefix_add(&plan->line_prefix, template, &why);
    return status == DDP_OK ? status : ddp_fail(err, status, "%s=%.60s: %s", from, template, why.msg);
}

/* --- all workers ---------------------------------------------------------------------------------------- */

/* Return DDP_ERR_ARG if --env sets a GPU variable, which --virtual_local_rank must set. */
static ddp_status check_visible_env(const struct plan *plan, struct ddp_err *err)
{
    static const char *const names[] = { "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES" };
    for (size_t i = 0; plan->cli->virtual_local_rank && i < sizeof(names) / sizeof(names[0]); i++)
        if (plan_user_value(plan, names[i]) != env_find(plan->facts->environ_block, names[i]))
            return ddp_fail(
                err, DDP_ERR_ARG,
                "--env=%s: cannot be used with --virtual_local_rank: all workers would get the same "
                "GPUs; set %s in ddprun's environment instead",
                names[i], names[i]);
    return DDP_OK;
}

/* Return DDP_ERR_ARG if the GPU list for --virtual_local_rank has fewer entries than this node has workers. With
 * --share_gpu, one entry for each visible GPU is enough. With --per_task, a list of one entry is also valid, because
 * the scheduler may show each task only its own GPU. */
static ddp_status check_visible(const struct plan *plan, struct ddp_err *err)
{
    const struct cli *cli = plan->cli;
    const char *list = cli->virtual_local_rank ? parent_gpus(plan) : NULL;
    const int entries = parent_entries(plan);
    int workers = cli->per_task ? cli->task.local_world_size : plan->nproc;
    if (cli->share_gpu && plan->gpus->n > 0 && workers > plan->gpus->n)
        workers = plan->gpus->n;
    if (list == NULL || entries >= workers || (cli->per_task && entries == 1))
        return DDP_OK;
    if (cli->per_task)
        return ddp_fail(err, DDP_ERR_ARG,
                        "--virtual_local_rank: the list of GPUs \"%.200s\" has %d entries for %d tasks; "
                        "let each task see all GPUs of its node, or exactly one GPU",
                        list, entries, workers);
    return ddp_fail(
        err, DDP_ERR_ARG,
        "--virtual_local_rank: the list of GPUs \"%.200s\" has %d entr%s for %d workers; add entries to "
        "%s, or start fewer workers",
        list, entries, entries == 1 ? "y" : "ies", workers, parent_variable(plan));
}

/* Set the worker's CUDA_VISIBLE_DEVICES to the entry of parent_gpus() at gpu_index(). check_visible() has already
 * checked the length of this list. Without a list, the value is the index itself. */
static bool plan_visible_gpu(const struct plan *plan, struct plan_worker *w)
{
    const char *at = parent_gpus(plan);
    const int index = gpu_index(plan, w->local_rank);
    if (at == NULL) {
        w->visible = plan_text_of("%d", index);
        return w->visible != NULL;
    }
    for (int i = 0; i < index; i++)
        at += strcspn(at, ",") + 1;
    at += strspn(at, " \t");
    size_t len = strcspn(at, ",");
    while (len > 0 && (at[len - 1] == ' ' || at[len - 1] == '\t'))
        len--;
    w->visible = plan_text_of("%.*s", (int)len, at);
    return w->visible != NULL;
}

static ddp_status plan_cpus(struct plan *plan, struct ddp_err *err)
{
    const struct cli *cli = plan->cli;
    ddp_status status = DDP_OK;
    for (int r = 0; r < plan->nproc && cli->numa_binding != NUMA_NONE && status == DDP_OK; r++)
        status = numa_choose(cli->numa_binding, plan->facts->numa, plan->gpus, gpu_index(plan, r),
                             &plan->workers[r].cpus, err);
    return status;
}

/* Plan each worker with the guessed ranks of a first round. So a wrong --log_file pattern is found before the nodes
 * join. */
static ddp_status plan_each(struct plan *plan, struct ddp_err *err)
{
    const struct python_choice *python = plan->facts->python;
    const struct plan_round first = plan_same_round(plan, 0);
    plan->script = program_script(plan->cli, python);
    for (int r = 0; r < plan->nproc; r++) {
        struct plan_worker *w = &plan->workers[r];
        w->local_rank = r;
        w->gpu = plan->cli->per_task ? gpus_of_task(plan->gpus, gpu_index(plan, r))
                                     : gpus_of_worker(plan->gpus, r, plan->nproc, plan->cli->share_gpu);
        if (plan->cli->virtual_local_rank && !plan_visible_gpu(plan, w))
            return DDP_ERR_NOMEM;
        if (plan->cli->per_task)
            w->local_rank = plan->cli->task.local_rank;
        w->argv = program_argv(plan->cli, python, w->local_rank);
        if (w->argv == NULL)
            return DDP_ERR_NOMEM;
    }
    ddp_status status = plan_cpus(plan, err);
    if (status == DDP_OK)
        status = plan_round(plan, &first, err);
    plan->prefix = needs_prefix(plan);
    return status;
}

/* Make all decisions. The number of workers comes first, because the later decisions need it. Impossible requests are
 * rejected here, before any process starts. */
static ddp_status decide(struct plan *plan, struct ddp_err *err)
{
    ddp_status status = plan_workers(plan, err);
    if (status == DDP_OK && cli_gives(plan->cli, OPT_STDIN) && plan->cli->nnodes.max == 1)
        status = check_input(plan, err);
    if (status == DDP_OK)
        status = check_visible_env(plan, err);
    if (status == DDP_OK)
        status = check_visible(plan, err);
    if (status == DDP_OK)
        status = plan_prefix(plan, err);
    if (status == DDP_OK)
        status = plan_check_log_dir(plan, err);
    if (status == DDP_OK && (!plan_meet(plan) || !plan_log_root(plan)))
        status = DDP_ERR_NOMEM;
    if (status == DDP_OK)
        status = check_key(plan, err);
    if (status == DDP_OK && plan->encrypt && plan->rank0_store)
        status =
            ddp_fail(err, DDP_ERR_ARG,
                     "--encrypt: cannot encrypt PyTorch's own store, which the workers use because %s",
                     asks_for_rank0(plan) ? RANK0_SWITCH "=1 is set; unset this variable"
                                          : "this PyTorch was built without libuv; use a PyTorch with libuv");
    if (status == DDP_OK)
        status = plan_each(plan, err);
    if (status == DDP_OK)
        status = plan_environment(plan);
    plan_note_idle(plan);
    return status == DDP_ERR_NOMEM ? ddp_fail(err, status, "out of memory for %d workers", plan->nproc)
                                   : status;
}

ddp_status plan_make(struct plan *plan, const struct cli *cli, const struct plan_facts *facts,
                     struct ddp_err *err)
{
    *plan = (struct plan){ .cli = cli, .facts = facts };
    ddp_status status = decide(plan, err);
    if (status != DDP_OK)
        plan_free(plan);
    return status;
}
