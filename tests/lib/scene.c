/* scene.c -- see scene.h. The hosts and their network come first, then the run of one scene. */
#include "scene.h"

#include "auth/secret.h"

#include "base/clock.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* Process 1 of a host is a child of the test. One clone() creates this child and all its namespaces. Process 1 mounts
 * its own file systems, reports through a pipe that it is ready, and sleeps. The kernel reaps the orphans of a host.
 * hosts_net_join makes the network between the hosts. */

#define GROUP_PREFIX "ddprun-hosts-"

enum { OWN = CLONE_NEWNET | CLONE_NEWUTS | CLONE_NEWNS | CLONE_NEWIPC, TEXT = 8192, PIDS_MAX = 4096 };

static bool put_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    bool ok = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0)
        close(fd);
    return ok;
}

/* --- control groups -------------------------------------------------------------------------------------- */

/* Return the writable mount of version 2 of control groups, or "". */
static const char *group_root(void)
{
    static const char *const roots[] = { "/sys/fs/cgroup/unified", "/sys/fs/cgroup" };
    for (size_t i = 0; i < sizeof(roots) / sizeof(roots[0]); i++) {
        char path[64];
        snprintf(path, sizeof(path), "%s/cgroup.procs", roots[i]);
        if (access(path, W_OK) == 0)
            return roots[i];
    }
    return "";
}

/* Remove a control group and all groups below it. The groups have no processes. */
static void remove_groups(const char *path)
{
    DIR *dir = opendir(path);
    for (struct dirent *e; dir != NULL && (e = readdir(dir)) != NULL;) {
        char below[512];
        if (e->d_type != DT_DIR || e->d_name[0] == '.')
            continue;
        snprintf(below, sizeof(below), "%s/%s", path, e->d_name);
        remove_groups(below);
    }
    if (dir != NULL)
        closedir(dir);
    /* the last process may still be in the group for a moment */
    for (int i = 0; rmdir(path) != 0 && i < 200 && access(path, F_OK) == 0; i++)
        poll(NULL, 0, 5);
}

/* Remove the control groups of earlier tests that were killed. */
static void bury_groups(const char *root)
{
    DIR *dir = opendir(root);
    for (struct dirent *e; dir != NULL && (e = readdir(dir)) != NULL;) {
        char path[512];
        int pid = 0;
        if (sscanf(e->d_name, GROUP_PREFIX "%d", &pid) != 1 || pid <= 0 || kill(pid, 0) == 0)
            continue;
        snprintf(path, sizeof(path), "%s/%s", root, e->d_name);
        remove_groups(path);
    }
    if (dir != NULL)
        closedir(dir);
}

static void group_path(char path[96])
{
    snprintf(path, 96, "%s/" GROUP_PREFIX "%d", group_root(), (int)getpid());
}

static void make_group(struct host *h)
{
    char all[96];
    group_path(all);
    if (group_root()[0] == '\0')
        return;
    mkdir(all, 0755);
    if (snprintf(h->group, sizeof(h->group), "%s/%d", all, h->index) < 0 || mkdir(h->group, 0755) != 0)
        h->group[0] = '\0';
}

static void join_group(const struct host *h)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/cgroup.procs", h->group);
    if (h->group[0] != '\0')
        put_file(path, "0");
}

/* --- process 1 ------------------------------------------------------------------------------------------- */

/* Fork into new namespaces. The child dies with this process. */
static pid_t fork_apart(unsigned long namespaces)
{
    pid_t pid = (pid_t)syscall(SYS_clone, namespaces | SIGCHLD, NULL, NULL, NULL, NULL);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        signal(SIGCHLD, SIG_IGN);
        signal(SIGTERM, SIG_DFL);
    }
    return pid;
}

static bool mount_over(const char *file, const char *name)
{
    char path[64];
    snprintf(path, sizeof(path), "/run/%s", name);
    return (access(path, F_OK) == 0 || put_file(path, "hosts: files\n")) &&
           mount(path, file, NULL, MS_BIND, NULL) == 0;
}

/* Set the host's name and mount its files. Names come only from /etc/hosts, because no test may use the machine's
 * name server. */
static bool furnish(const struct host *h)
{
    return sethostname(h->name, strlen(h->name)) == 0 &&
           mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("proc", "/proc", "proc", 0, NULL) == 0 &&
           mount("tmpfs", "/run", "tmpfs", 0, "mode=755") == 0 && mkdir("/run/user", 0755) == 0 &&
           mkdir("/run/user/0", 0700) == 0 && mount("tmpfs", "/dev/shm", "tmpfs", 0, NULL) == 0 &&
           put_file("/run/hosts", "") && mount_over("/etc/hosts", "hosts") &&
           mount_over("/etc/nsswitch.conf", "nsswitch.conf");
}

_Noreturn static void live(int ready, bool ok)
{
    if (!ok || write(ready, "", 1) != 1)
        _exit(1);
    close(ready);
    for (;;)
        pause();
}

/* Wait for the byte that live() writes. */
static bool is_ready(int ends[2])
{
    char byte;
    close(ends[1]);
    bool ok = read(ends[0], &byte, 1) == 1;
    close(ends[0]);
    return ok;
}

static bool host_begin(struct host *h)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return false;
    make_group(h);
    h->init = fork_apart(OWN | CLONE_NEWPID);
    if (h->init == 0) {
        join_group(h);
        live(ends[1], furnish(h));
    }
    return h->init > 0 && is_ready(ends);
}

/* --- programs on a host ---------------------------------------------------------------------------------- */

/* Open the root directory of process 1. If the tests run in a chroot, process 1 of the host is in the same chroot. But
 * a process that enters a mount namespace leaves its chroot. So the child must then change its root directory to the
 * root directory of process 1. */
static int open_root(const struct host *h)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/root", (int)h->init);
    return open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

/* Fork a child into the host's PID namespace. The child enters all other namespaces by itself. */
static pid_t fork_onto(const void *place)
{
    const struct host *h = place;
    int theirs = pidfd_open(h->init, 0), ours = open("/proc/self/ns/pid", O_RDONLY | O_CLOEXEC),
        root = open_root(h);
    pid_t pid = -1;
    if (theirs >= 0 && setns(theirs, CLONE_NEWPID) == 0)
        pid = fork();
    if (pid == 0) {
        join_group(h);
        if (setns(theirs, OWN) != 0 || fchdir(root) != 0 || chroot(".") != 0)
            _exit(126);
    }
    setns(ours, CLONE_NEWPID);
    close(root);
    close(theirs);
    close(ours);
    return pid;
}

struct run_process *host_start(const struct host *host, const char *const argv[],
                               const struct run_options *options)
{
    struct run_options o = options != NULL ? *options : (struct run_options){ 0 };
    o.fork = fork_onto;
    o.place = host;
    return run_start(argv, &o);
}

struct run_result host_run(const struct host *host, const char *const argv[])
{
    return run_wait(host_start(host, argv, NULL));
}

static bool shell(const struct host *h, const char *command)
{
    const char *argv[] = { "/bin/sh", "-c", command, NULL };
    struct run_result r = h != NULL ? host_run(h, argv) : run_command(argv, NULL);
    bool ok = r.exit_code == 0;
    if (!ok)
        fprintf(stderr, "%s: '%s' ended with %d: %s\n", h != NULL ? h->name : "hosts", command, r.exit_code,
                r.err);
    return ok;
}

bool host_sh(const struct host *host, const char *command, ...)
{
    char text[TEXT];
    va_list args;
    va_start(args, command);
    vsnprintf(text, sizeof(text), command, args);
    va_end(args);
    return shell(host, text);
}

/* --- faults ---------------------------------------------------------------------------------------------- */

void host_rules(const struct host *host, const char *command, ...)
{
    static const char chains[] = "add table inet f; "
                                 "add chain inet f in { type filter hook input priority 0; }; "
                                 "add chain inet f out { type filter hook output priority 0; }; ";
    char text[1024];
    va_list args;
    va_start(args, command);
    vsnprintf(text, sizeof(text), command, args);
    va_end(args);
    cr_assert(host_sh(host, "nft '%s %s'", chains, text));
}

void host_heal(const struct host *host)
{
    cr_assert(host_sh(host, "nft flush ruleset"));
}

void host_cable(const struct hosts *net, int index, bool plugged)
{
    cr_assert(host_sh(NULL, "nsenter -t %d -n ip link set p%d %s", (int)net->bridge, index,
                      plugged ? "up" : "down"));
}

void host_names(const struct host *host, const char *lines)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/root/run/hosts", (int)host->init);
    cr_assert(put_file(path, lines));
}

/* Return true if process `pid` is in the host's PID namespace and not a zombie, which has no /proc/PID/exe. */
static bool is_on(const struct host *h, pid_t pid)
{
    char path[64], theirs[64] = "", ours[64] = "";
    snprintf(path, sizeof(path), "/proc/%d/exe", (int)pid);
    if (readlink(path, theirs, sizeof(theirs)) < 0)
        return false;
    memset(theirs, 0, sizeof(theirs));
    snprintf(path, sizeof(path), "/proc/%d/ns/pid", (int)pid);
    if (readlink(path, theirs, sizeof(theirs) - 1) < 0)
        return false;
    snprintf(path, sizeof(path), "/proc/%d/ns/pid", (int)h->init);
    return readlink(path, ours, sizeof(ours) - 1) > 0 && strcmp(theirs, ours) == 0;
}

/* List the processes of a host except process 1. The kernel lists them by ascending id, so parents usually come
 * first. */
static int list_pids(const struct host *host, pid_t pids[PIDS_MAX])
{
    int n = 0;
    DIR *proc = opendir("/proc");
    for (struct dirent *e; proc != NULL && n < PIDS_MAX && (e = readdir(proc)) != NULL;) {
        const pid_t pid = (pid_t)strtol(e->d_name, NULL, 10);
        if (pid > 0 && pid != host->init && is_on(host, pid))
            pids[n++] = pid;
    }
    if (proc != NULL)
        closedir(proc);
    return n;
}

/* Read the name of the program of process `pid`, or "" if the process has ended. */
static void name_of(pid_t pid, char name[64])
{
    char path[64];
    name[0] = '\0';
    snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
    FILE *f = fopen(path, "re");
    if (f != NULL && fgets(name, 64, f) != NULL)
        name[strcspn(name, "\n")] = '\0';
    if (f != NULL)
        fclose(f);
}

int host_signal(const struct host *host, const char *name, int signal)
{
    pid_t pids[PIDS_MAX];
    int signalled = 0;
    const int n = list_pids(host, pids);
    for (int i = 0; i < n; i++) {
        char its[64];
        name_of(pids[i], its);
        if (name == NULL || strcmp(its, name) == 0)
            signalled += kill(pids[i], signal) == 0;
    }
    return signalled;
}

static int count_on(const struct host *host, char *names, size_t size)
{
    pid_t pids[PIDS_MAX];
    const int n = list_pids(host, pids);
    if (names != NULL)
        names[0] = '\0';
    for (int i = 0; names != NULL && i < n; i++) {
        const size_t len = strlen(names);
        char name[64];
        name_of(pids[i], name);
        snprintf(names + len, size - len, " %s", name);
    }
    return n;
}

int host_left(const struct host *host, int timeout_ms, char *names, size_t size)
{
    const uint64_t until_ms = clock_ms() + (uint64_t)timeout_ms;
    int n;
    while ((n = count_on(host, names, size)) > 0 && clock_ms() < until_ms)
        poll(NULL, 0, 10);
    return n;
}

static void end_process(pid_t *pid)
{
    if (*pid > 0) {
        kill(*pid, SIGKILL);
        waitpid(*pid, NULL, 0);
    }
    *pid = 0;
}

void host_off(struct hosts *net, int index)
{
    host_cable(net, index, false);
    /* do not wait for process 1 here: it ends only after the test has reaped the other programs of the host */
    kill(net->host[index].init, SIGKILL);
    net->host[index].off = true;
}

/* --- hosts net -------------------------------------------------------------------------------------------- */

/* HOSTS_V4, HOSTS_V6 HOSTS_NAT
 *
 *     node0 --- p0 .              node0 --- p0 --- br0 (10.9.0.254)
 *     node1 --- p1 -- br0                           |    all leave as 10.9.0.254; no connection comes in or across
 *     node2 --- p2 '              node1 (10.8.1.2) --- p1 (10.8.1.254)
 *                                 node2 (10.8.2.2) --- p2 (10.8.2.254)
 *
 * Everything except the nodes is in the network namespace of the bridge. With HOSTS_NAT, this namespace is also the
 * router. */

/* Return true if a router separates host `index` from the bridge. */
static bool is_inside(enum hosts_kind kind, int index)
{
    return kind == HOSTS_NAT && index > 0;
}

static void hosts_net_address(enum hosts_kind kind, struct host *h)
{
    if (kind == HOSTS_V6)
        snprintf(h->addr, sizeof(h->addr), "fd00::%x", (unsigned)h->index + 1);
    else if (is_inside(kind, h->index))
        snprintf(h->addr, sizeof(h->addr), "10.8.%d.2", h->index);
    else
        snprintf(h->addr, sizeof(h->addr), "10.9.0.%d", h->index + 1);
}

/* Write the commands for p<i>, the far end of the cable of host i. If a router separates host i from the bridge, the
 * cable ends at the router: give p<i> the router's address. Otherwise the cable ends at the bridge: make p<i> a port of
 * the bridge. */
static int put_port(const struct hosts *net, int i, char *text, size_t size)
{
    if (is_inside(net->kind, i))
        return snprintf(text, size, "addr add 10.8.%d.254/24 dev p%d\nlink set p%d up\n", i, i, i);
    return snprintf(text, size, "link set p%d master br0 up\n", i);
}

/* Lay the cables of all hosts, with one batch of commands on the bridge's side. */
static bool lay_cables(const struct hosts *net)
{
    char text[TEXT];
    int n = snprintf(text, sizeof(text),
                     "nsenter -t %d -n ip -batch - <<'.'\nlink add br0 type bridge\nlink set br0 up\n",
                     (int)net->bridge);
    for (int i = 0; i < net->count; i++) {
        n += snprintf(text + n, sizeof(text) - (size_t)n, "link add p%d type veth peer name eth0 netns %d\n",
                      i, (int)net->host[i].init);
        n += put_port(net, i, text + n, sizeof(text) - (size_t)n);
    }
    snprintf(text + n, sizeof(text) - (size_t)n, ".\n");
    return host_sh(NULL, "%s", text);
}

/* Switch on the network of a host. Without nodad an IPv6 address is not usable in the first second. */
static bool switch_on(const struct hosts *net, const struct host *h)
{
    char router[32] = "10.9.0.254";
    if (is_inside(net->kind, h->index))
        snprintf(router, sizeof(router), "10.8.%d.254", h->index);
    if (net->kind == HOSTS_V6)
        return host_sh(
            h, "ip -batch - <<'.'\nlink set lo up\naddr add %s/64 dev eth0 nodad\nlink set eth0 up\n.\n",
            h->addr);
    return host_sh(h,
                   "ip -batch - <<'.'\nlink set lo up\naddr add %s/24 dev eth0\nlink set eth0 up\n"
                   "route add default via %s\n.\n",
                   h->addr, router);
}

static bool translate(const struct hosts *net)
{
    return net->kind != HOSTS_NAT ||
           host_sh(NULL,
                   "nsenter -t %d -n sh -e <<'.'\n"
                   "ip addr add 10.9.0.254/24 dev br0\necho 1 >/proc/sys/net/ipv4/ip_forward\n"
                   "nft 'add table ip n; add chain ip n out { type nat hook postrouting priority 100; }; "
                   "add rule ip n out oifname br0 masquerade; "
                   "add chain ip n through { type filter hook forward priority 0; }; "
                   "add rule ip n through ct state new oifname != br0 drop'\n.\n",
                   (int)net->bridge);
}

static void tell_names(const struct hosts *net)
{
    char text[TEXT] = "127.0.0.1 localhost\n::1 localhost\n";
    for (int i = 0; i < net->count; i++)
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s %s\n", net->host[i].addr,
                 net->host[i].name);
    for (int i = 0; i < net->count; i++)
        host_names(&net->host[i], text);
}

/* Connect all hosts to the bridge, whose network namespace already exists. Set addresses, routes and names. */
static bool hosts_net_join(const struct hosts *net)
{
    bool ok = lay_cables(net) && translate(net);
    for (int i = 0; ok && i < net->count; i++)
        ok = switch_on(net, &net->host[i]);
    if (ok)
        tell_names(net);
    return ok;
}

/* --- all hosts ------------------------------------------------------------------------------------------- */

/* Return why hosts cannot be created here, or NULL. */
static const char *hosts_lack(void)
{
    static const char *const tools[] = { "/usr/sbin/ip", "/sbin/ip", "/usr/sbin/nft", "/sbin/nft" };
    if (geteuid() != 0)
        return "hosts in network namespaces need root";
    for (int i = 0; i < 4; i += 2)
        if (access(tools[i], X_OK) != 0 && access(tools[i + 1], X_OK) != 0)
            return i == 0 ? "ip (iproute2) is missing" : "nft (nftables) is missing";
    int status = 1;
    pid_t pid = fork_apart(OWN | CLONE_NEWPID);
    if (pid == 0)
        _exit(0);
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        return "the kernel makes no namespaces for us";
    return NULL;
}

static bool bridge_begin(struct hosts *net)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return false;
    net->bridge = fork_apart(CLONE_NEWNET);
    if (net->bridge == 0)
        live(ends[1], true);
    return net->bridge > 0 && is_ready(ends);
}

static struct hosts *hosts_open_as(enum hosts_kind kind, int count)
{
    const char *lack = hosts_lack();
    if (lack != NULL)
        cr_skip_test("skipped, because %s", lack);
    struct hosts *net = calloc(1, sizeof(*net));
    cr_assert(net != NULL && count <= HOSTS_MAX);
    net->kind = kind;
    bool ok = bridge_begin(net);
    if (group_root()[0] != '\0')
        bury_groups(group_root());
    for (int i = 0; ok && i < count; i++) {
        struct host *h = &net->host[net->count++];
        h->index = i;
        snprintf(h->name, sizeof(h->name), "node%d", i);
        hosts_net_address(kind, h);
        ok = host_begin(h);
    }
    ok = ok && hosts_net_join(net);
    cr_assert(ok, "the hosts cannot be made");
    return net;
}

struct hosts *hosts_open(int count)
{
    return hosts_open_as(HOSTS_V4, count);
}

void hosts_close(struct hosts *net)
{
    char all[96];
    for (int i = 0; i < net->count; i++)
        end_process(&net->host[i].init);
    end_process(&net->bridge);
    group_path(all);
    if (group_root()[0] != '\0')
        remove_groups(all);
    free(net);
}

/* --- scene ------------------------------------------------------------------------------------------------ */

enum { WORDS_MAX = 64, SCENE_TEXT = 4096, START_MS = 60000, LIFE_MS = 110000, LEFT_MS = 10000 };

/* --- starting -------------------------------------------------------------------------------------------- */

/* The file with the secret of a scene's nodes. */
#define SECRET_PATH "/tmp/ddprun-test-secret-%d"

static void make_secret(struct play *play)
{
    struct ddp_err err;
    snprintf(play->secret, sizeof(play->secret), SECRET_PATH, (int)getpid());
    unlink(play->secret);
    cr_assert_eq(secret_write(play->secret, &err), DDP_OK, "%s", err.msg);
}

/* A command line, made from texts whose words are separated by spaces. */
struct words {
    const char *argv[WORDS_MAX + 1];
    char text[SCENE_TEXT];
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

/* Add the program. "train ..." is build/train, "/..." is a path, and all other programs are the tests' programs. */
static void add_program(struct words *w, const char *program)
{
    const int name = (int)strcspn(program, " ");
    char path[128];
    if (program[0] == '/') {
        add(w, "%s", program);
        return;
    }
    snprintf(path, sizeof(path), "%s%.*s", strncmp(program, "train ", 6) == 0 ? "" : "tests/prog/", name,
             program);
    add(w, "%s%s", bin(path), program + name);
}

void scene_start(struct play *play, int i, const char *more_options)
{
    char secret[sizeof(play->secret) + 32];
    const char *const env[] = { "OMP_NUM_THREADS=1", "CUDA_VISIBLE_DEVICES", "NO_COLOR", "RANK",
                                "MASTER_ADDR",       "MASTER_PORT",          secret,     NULL };
    const struct scene *s = play->scene;
    struct words w = { .n = 0 };
    snprintf(secret, sizeof(secret), "PET_SECRET_FILE=%s", play->secret);
    add(&w, "%s", s->node[i].ddprun != NULL ? s->node[i].ddprun : bin("ddprun"));
    if (!s->elastic)
        add(&w, "--nnodes=%d --node_rank=%d --master_addr=%s", host_count(s), i, play->net->host[0].addr);
    add(&w, "--nproc_per_node=2 --grace=2 %s %s %s", or_none(s->options), or_none(s->node[i].options),
        or_none(more_options));
    const char *program = s->node[i].program != NULL ? s->node[i].program : s->program;
    add_program(&w, program != NULL ? program : "worker say:up forever");
    w.argv[w.n] = NULL;
    play->node[i] =
        host_start(&play->net->host[i], w.argv,
                   &(struct run_options){ .env = env, .cwd = "/tmp", .timeout_ms = LIFE_MS + s->start_ms });
    cr_assert_not_null(play->node[i]);
}

/* Start all nodes in the order of `late_ms`. */
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

/* --- search ---------------------------------------------------------------------------------------------- */

/* Copy the next text up to '|'. Return false at the end. */
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

/* Expect that `said` contains all of `texts`, in this order. */
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

void scene_expect_why(struct play *play, int i, const char *store, const char *texts)
{
    const char *argv[] = { bin("ddpctl"), "--addr", store, "why", NULL };
    const uint64_t until_ms = clock_ms() + CONNECTIONS;
    for (;;) {
        struct run_result r = host_run(&play->net->host[i], argv);
        const bool ok = has_parts(r.out, texts), over = clock_ms() > until_ms;
        cr_expect(ok || !over, "%s: ddpctl why on node %d does not say '%s':\n%s%s", play->scene->name, i,
                  texts, r.out, r.err);
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
    make_secret(&play);
    if (scene->before != NULL)
        scene->before(&play);
    play.fault_ms = clock_ms();
    start_all(&play);
    for (int i = 0; scene->until != NULL && i < host_count(scene); i++)
        cr_expect(play.node[i] == NULL || run_until_output(play.node[i], scene->until,
                                                           scene->start_ms > 0 ? scene->start_ms : START_MS),
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
        run_wait(play.other);
    }
    expect_nobody(&play);
    unlink(play.secret);
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

static int count_texts(const char *text, const char *piece)
{
    int n = 0;
    while ((text = strstr(text, piece)) != NULL) {
        text += strlen(piece);
        n++;
    }
    return n;
}

/* Expect that the store has rejected no client, except silent connections. On a busy host an agent may close a
 * connection without sending a byte, and then dial again. */
void after_no_rejects(struct play *play)
{
    static const char *const never[] = { "too many", "agent", "sent nothing" };
    const char *argv[] = { bin("ddpctl"), "--addr", "10.9.0.1:29500", "--json", "rejects", NULL };
    struct run_result r = host_run(&play->net->host[0], argv);
    cr_expect_not_null(strstr(r.out, "\"rejects\":\t["), "%s: %s%s", play->scene->name, r.out, r.err);
    cr_expect_eq(count_texts(r.out, "\"kind\":"), count_texts(r.out, "\"kind\":\t\"silent\""), "%s: %s",
                 play->scene->name, r.out);
    for (size_t i = 0; i < sizeof(never) / sizeof(never[0]); i++)
        cr_expect_null(strstr(r.out, never[i]), "%s: %s", play->scene->name, r.out);
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
    }
    cr_expect(host_sh(NULL,
                      "cd " TRAIN_PLACE "%s && mv bits two && %s --nproc_per_node=2 %s --data . --batch=50 "
                      "--limit_steps=10 --quiet --dump_gradients bits 2>&1 && cmp bits two",
                      name, bin("ddprun"), bin("train")),
              "the gradients differ");
    train_remove_data(play);
}
