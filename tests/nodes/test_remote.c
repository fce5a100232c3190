/* ddprun --hosts on hosts with a real sshd each. One command on node 0 starts the job on all hosts. If a host, the
 * network or the terminal's node fails, no host may keep a process or file of the job. DDP_HOSTS=64 starts the first
 * job on 64 hosts instead of 8. */
#include "scene.h"

#include "base/clock.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char dir[] = "/tmp/ddp-remote-XXXXXX";
static char ssh[600];

/* Start sshd on every host, with one key for all. */
static struct hosts *open_hosts(int count)
{
    struct hosts *net = hosts_open(count);
    char command[600];
    if (access("/usr/sbin/sshd", X_OK) != 0 || access("/usr/bin/ssh-keygen", X_OK) != 0) {
        hosts_close(net);
        cr_skip_test("skipped, because openssh-server or openssh-client is not installed");
    }
    temp_dir_make(dir);
    snprintf(command, sizeof(command),
             "cd %s && ssh-keygen -q -t ed25519 -N '' -f key && printf 'HostKey %s/key\\nAuthorizedKeysFile "
             "%s/key.pub\\n"
             "StrictModes no\\nUsePAM no\\nPidFile /run/sshd.pid\\nMaxStartups 100\\n' >conf",
             dir, dir, dir);
    cr_assert(host_sh(&net->host[0], "%s", command));
    for (int i = 0; i < count; i++)
        cr_assert(host_sh(&net->host[i],
                          "mkdir -p /run/sshd && /usr/sbin/sshd -f %s/conf -E %s/log%d && until [ -s "
                          "/run/sshd.pid ]; do sleep 0.02; done",
                          dir, dir, i));
    snprintf(
        ssh, sizeof(ssh),
        "--ssh=/usr/bin/ssh -F none -i %s/key -o UserKnownHostsFile=%s/known -o StrictHostKeyChecking=no",
        dir, dir);
    return net;
}

static void close_hosts(struct hosts *net)
{
    hosts_close(net);
    temp_dir_remove(dir);
}

/* The node timeout of jobs with a fault. If a host is cut off, the workers of all hosts end after this time. Each ssh
 * to this host, from the starting host or from a branch, ends at about the same time. The job must end on all hosts
 * within END_MS of the fault. BUSY_MS is the part of END_MS that only a busy machine needs. */
#define NODE_TIMEOUT "--node_timeout=10"
enum { BUSY_MS = 10 * 1000, END_MS = 10 * 1000 + BUSY_MS };

/* List what a job has left on a host: running processes, files and control groups. Process 1, sshd and the empty
 * directory for files of jobs may stay. The last line is "end". */
static char *find_leftovers(const struct host *host)
{
    char command[600];
    snprintf(
        command, sizeof(command),
        "ps -eo pid=,ppid=,stat=,comm=,args= | awk -v me=$$ '$1 != 1 && $1 != me && $2 != me && $3 !~ /^Z/ "
        "&& $4 != \"sshd\"'; find /run/user/0/* /dev/shm/* ! -path /run/user/0/ddprun 2>/dev/null; "
        "test -z '%s' || find '%s' -mindepth 1 -type d; echo end",
        host->group, host->group);
    const char *argv[] = { "/bin/sh", "-c", command, NULL };
    return host_run(host, argv).out;
}

/* Wait at most END_MS after `since_ms` until a job has left nothing on a host. */
static void expect_end_since(const struct hosts *net, int i, uint64_t since_ms)
{
    char *left = find_leftovers(&net->host[i]);
    while (strcmp(left, "end\n") != 0 && clock_ms() < since_ms + END_MS) {
        usleep(100 * 1000);
        left = find_leftovers(&net->host[i]);
    }
    cr_expect_str_eq(left, "end\n", "%s has after %d s: %s", net->host[i].name, END_MS / 1000, left);
}

static void expect_nothing_left(const struct hosts *net, int i)
{
    expect_end_since(net, i, clock_ms());
}

static struct run_process *start_job_with(const struct hosts *net, const char *list, const char *option)
{
    const char *argv[] = { bin("ddprun"), list,      ssh, option, NODE_TIMEOUT, bin("tests/prog/worker"),
                           "say:up",      "forever", NULL };
    return host_start(
        &net->host[0], argv,
        &(struct run_options){ .timeout_ms = 150000, .env = (const char *[]){ "OMP_NUM_THREADS=1", NULL } });
}

static struct run_process *start_job(const struct hosts *net, const char *list)
{
    return start_job_with(net, list, "--contain=auto");
}

static void until_up(struct run_process *p, int ranks)
{
    char line[32];
    for (int i = 0; i < ranks; i++) {
        snprintf(line, sizeof(line), ":%d] up\n", i);
        cr_assert(run_until_output(p, line, PATIENCE_MS), "rank %d does not come: %s", i, run_output(p));
    }
}

static int count(const char *text, const char *piece)
{
    int n = 0;
    for (; (text = strstr(text, piece)) != NULL; text += strlen(piece))
        n++;
    return n;
}

Test(remote, hosts_start_and_end_by_one_command, .timeout = 900)
{
    const char *number = getenv("DDP_HOSTS");
    const int n = number != NULL ? atoi(number) : 8;
    struct hosts *net = open_hosts(n);
    struct run_options options = { .timeout_ms = 300000 };
    char list[32], last[64], only[24];
    snprintf(list, sizeof(list), "--hosts=node[0-%d]:2", n - 1);
    snprintf(only, sizeof(only), "only:%d", 2 * n - 1);
    const char *up[] = { bin("ddprun"), list, ssh, bin("tests/prog/worker"), "say:up", "forever", NULL };
    const char *fails[] = { bin("ddprun"), list,      ssh, bin("tests/prog/worker"), only, "exit:9",
                            "all",         "forever", NULL };
    const char *counts[] = { bin("ddprun"), list, ssh, "/bin/sh", "-c", "seq 1000", NULL };
    struct run_process *p = host_start(&net->host[0], up, &options);
    until_up(p, 2 * n);
    snprintf(last, sizeof(last), "[node%d:%d] up\n", n - 1, 2 * n - 1);
    cr_expect_not_null(strstr(run_output(p), last), "%s", run_output(p));
    run_signal(p, SIGINT);
    struct run_result r = run_wait(p);
    cr_expect_eq(r.exit_code, 130, "%d: %s", r.exit_code, r.err);
    r = run_wait(host_start(&net->host[0], fails, &options));
    cr_expect_eq(r.exit_code, 9, "%d: %s", r.exit_code, r.err);
    snprintf(last, sizeof(last), "rank %d on node%d failed first|exit 9", 2 * n - 1, n - 1);
    cr_expect(has_parts(r.err, last), "%s", r.err);
    r = run_wait(host_start(&net->host[0], counts, &options));
    cr_expect_eq(r.exit_code, 0, "%d: %s", r.exit_code, r.err);
    cr_expect_eq(count(r.out, "\n"), 2 * n * 1000);
    cr_expect_eq(count(r.out, "] 1000\n"), 2 * n);
    for (int i = 0; i < n; i++)
        expect_nothing_left(net, i);
    close_hosts(net);
}

/* The workers of the second host get the address of the relay on their host, and not the address of the store. */
Test(remote, encrypt_is_an_option_of_all_hosts, .timeout = 180)
{
    struct hosts *net = open_hosts(2);
    const char *argv[] = { bin("ddprun"), "--hosts=node[0-1]:1",   ssh, "--encrypt", "/bin/sh",
                           "-c",          "echo at=$MASTER_ADDR.", NULL };
    struct run_process *p = host_start(&net->host[0], argv, NULL);
    struct run_result r = run_wait(p);
    cr_expect_eq(r.exit_code, 0, "%d: %s", r.exit_code, r.err);
    cr_expect_not_null(strstr(r.out, "[node0:0] at=10.9.0.1."), "%s", r.out);
    cr_expect_not_null(strstr(r.out, "[node1:1] at=10.9.0.2."), "%s", r.out);
    for (int i = 0; i < 2; i++)
        expect_nothing_left(net, i);
    close_hosts(net);
}

static const char *const STORE_PORT = "29500";

/* Start a job of two hosts whose store has a known port. */
static struct run_process *start_on_port(const struct hosts *net, const char *address, const char *option)
{
    char port[32];
    snprintf(port, sizeof(port), "--master_port=%s", STORE_PORT);
    const char *argv[] = { bin("ddprun"), "--hosts=node[0-1]:1",    ssh,      address,   port,
                           option,        bin("tests/prog/worker"), "say:up", "forever", NULL };
    return host_start(&net->host[0], argv,
                      &(struct run_options){ .env = (const char *[]){ "OMP_NUM_THREADS=1", NULL } });
}

/* Node 1 loses the store on node 0. The finding of node 1 still reaches node 0, by ssh. */
Test(remote, a_host_that_loses_the_store_is_explained_by_node_0, .timeout = 180)
{
    struct hosts *net = open_hosts(2);
    struct run_process *p = start_on_port(net, "--master_addr=10.9.0.1", "--node_timeout=40");
    until_up(p, 2);
    host_rules(&net->host[0], "add rule inet f in iifname eth0 tcp dport 29500 drop");
    cr_expect(run_until_error(p, "node1 reports: ", 100000) &&
              run_until_error(p, "0's store at 10.9.0.1:29500", 100000));
    struct run_result r = run_wait(p);
    cr_expect_neq(r.exit_code, 0, "%s", r.err); /* exit code 123 if node 1 ends first, else 125 */
    cr_expect_not_null(strstr(r.err, "; node1 reports: "), "%s", r.err);
    for (int i = 0; i < 2; i++)
        expect_nothing_left(net, i);
    close_hosts(net);
}

/* On node 1, the name of the store resolves to another host. Node 1 prints nothing and would wait for 15 minutes, so
 * node 0 must report the reason. */
Test(remote, a_name_that_differs_on_another_host_is_explained_by_node_0, .timeout = 180)
{
    struct hosts *net = open_hosts(2);
    host_names(&net->host[1], "127.0.0.1 localhost\n127.0.1.1 node0\n");
    struct run_process *p = start_on_port(net, "--master_addr=node0", "--contain=auto");
    cr_expect(run_until_error(p, "node1 reports: ", 100000) &&
              run_until_error(p, "0's store at node0:29500", 100000));
    cr_expect(run_until_error(p, "finding  NAME_IS_LOOPBACK\n", 100000));
    run_signal(p, SIGINT);
    struct run_result r = run_wait(p);
    cr_expect_eq(r.exit_code, 130, "%d: %s", r.exit_code, r.err);
    for (int i = 0; i < 2; i++)
        expect_nothing_left(net, i);
    close_hosts(net);
}

Test(remote, an_unplugged_host_ends_its_part_and_the_others_end, .timeout = 180)
{
    struct hosts *net = open_hosts(3);
    struct run_process *p = start_job(net, "--hosts=node[0-2]:1");
    until_up(p, 3);
    const uint64_t fault_ms = clock_ms();
    host_cable(net, 1, false);
    for (int i = 1; i < 3; i++)
        expect_end_since(net, i, fault_ms);
    struct run_result r = run_wait(p);
    cr_expect_eq(r.exit_code, 125, "%d: %s", r.exit_code, r.err);
    cr_expect_not_null(strstr(r.err, "node1"), "%s", r.err);
    expect_nothing_left(net, 0);
    close_hosts(net);
}

Test(remote, a_starter_that_is_unplugged_leaves_nothing, .timeout = 180)
{
    struct hosts *net = open_hosts(3);
    struct run_process *p = start_job(net, "--hosts=node[1-2]:1");
    until_up(p, 2);
    const uint64_t fault_ms = clock_ms();
    host_cable(net, 0, false);
    for (int i = 1; i < 3; i++)
        expect_end_since(net, i, fault_ms);
    struct run_result r = run_wait(p);
    cr_expect_neq(r.exit_code, 0);
    expect_nothing_left(net, 0);
    close_hosts(net);
}

/* The first host resolves its own name to 127.0.1.1, which is the default on Debian. The first host also has a bridge
 * with an address that no other host reaches. */
Test(remote, the_store_gets_an_address_that_all_hosts_reach, .timeout = 180)
{
    struct hosts *net = open_hosts(2);
    cr_assert(host_sh(&net->host[0], "ip link add docker0 type bridge && ip addr add 172.17.0.1/16 dev "
                                     "docker0 && ip link set docker0 up"));
    host_names(&net->host[0], "127.0.1.1 node0\n10.9.0.2 node1\n");
    const char *argv[] = { bin("ddprun"), "--hosts=node0,node1",  ssh, "/bin/sh",
                           "-c",          "echo at $MASTER_ADDR", NULL };
    struct run_result r = host_run(&net->host[0], argv);
    cr_expect_eq(r.exit_code, 0, "%d: %s", r.exit_code, r.err);
    cr_expect_not_null(strstr(r.out, "[node1:1] at 10.9.0.1\n"), "%s%s", r.out, r.err);
    close_hosts(net);
}

/* The first host has two addresses. The second host reaches both, and the third host reaches only the second
 * address. */
Test(remote, hosts_that_reach_different_addresses_agree_on_one, .timeout = 180)
{
    struct hosts *net = open_hosts(3);
    cr_assert(host_sh(&net->host[0],
                      "ip link add second type bridge && ip addr add 10.8.0.1/24 dev second && "
                      "ip link set second up"));
    for (int i = 1; i < 3; i++)
        cr_assert(host_sh(&net->host[i], "ip route add 10.8.0.1 via 10.9.0.1"));
    host_rules(&net->host[2],
               "add rule inet f out ip daddr 10.9.0.1 tcp dport 1024-65535 tcp sport 1024-65535 drop");
    const char *argv[] = { bin("ddprun"), "--hosts=node[0-2]:1",  ssh, "/bin/sh",
                           "-c",          "echo at $MASTER_ADDR", NULL };
    struct run_result r = host_run(&net->host[0], argv);
    cr_expect_eq(r.exit_code, 0, "%d: %s", r.exit_code, r.err);
    cr_expect_not_null(strstr(r.out, "[node2:2] at 10.8.0.1\n"), "%s%s", r.out, r.err);
    close_hosts(net);
}

/* A firewall between the hosts lets only ssh pass. */
Test(remote, hosts_that_do_not_reach_each_other_are_named, .timeout = 180)
{
    struct hosts *net = open_hosts(2);
    host_rules(&net->host[1], "add rule inet f out tcp dport 1024-65535 tcp sport 1024-65535 drop");
    struct run_process *p = start_job(net, "--hosts=node[0-1]:1");
    struct run_result r = run_wait(p);
    cr_expect_eq(r.exit_code, 125, "%d: %s", r.exit_code, r.err);
    cr_expect_not_null(strstr(r.err, "NO_COMMON_ADDRESS"), "%s", r.err);
    cr_expect_not_null(strstr(r.err, "node0 (10.9.0.1"), "%s", r.err);
    close_hosts(net);
}

/* --- a host that cannot start ------------------------------------------------------------------------------------ */

/* A fault on node1. The command `breaks` causes the fault, and the command `heals` removes it. In these commands, $ROOT
 * is the folder of the programs, and $NODES is the folder of this test's source. $AREA is the folder that contains the
 * job's working directory and logs. */
struct bad_start {
    const char *hosts, *key, *known; /* option --hosts, and the names of two files in the test's directory */
    const char *breaks, *heals;
    const char *finding, *words;
    const char *needs; /* skip the row if this command fails on node1; NULL = never skip */
};

#define HIDE_CJSON \
    "mount --bind /dev/null $(ldd $ROOT/ddprun | sed -n 's/.*libcjson.* => \\(.*\\) (.*/\\1/p')"
#define SHOW_CJSON  "umount $(grep -o ' /[^ ]*libcjson[^ ]*' /proc/mounts)"
#define NEEDS_CJSON "ldd $ROOT/ddprun | grep -q libcjson" /* fails if the library is linked statically */

#define STOP_SSHD "kill $(cat /run/sshd.pid); while [ -e /run/sshd.pid ]; do sleep 0.02; done; "
#define START_SSHD(conf)                                                                                \
    "/usr/sbin/sshd -f $AREA/../" conf " -E $AREA/../log1; until [ -s /run/sshd.pid ]; do sleep 0.02; " \
    "done; "

/* MAKE_BUSY lets sshd accept only one connection that has not logged in yet. HOLD_LOGIN opens this connection and waits
 * for sshd's banner, because sshd counts a connection before it sends the banner. */
#define MAKE_BUSY \
    "{ sed /^MaxStartups/d $AREA/../conf; echo MaxStartups 1; echo LoginGraceTime 0; } >$AREA/../busy; "
#define HOLD_LOGIN                                                                                       \
    "setsid bash -c 'exec 3<>/dev/tcp/127.0.0.1/22; read -r line <&3; echo $$ >/run/holder; exec sleep " \
    "1000' "                                                                                             \
    ">/dev/null 2>&1 & until [ -s /run/holder ]; do sleep 0.02; done"

static const struct bad_start bad_starts[] = {
    { "--hosts=node0,node1", "key", "known", STOP_SSHD, START_SSHD("conf"), "HOST_NOT_REACHED",
      .words = "Connection refused" },
    { "--hosts=node0,nowhere.invalid", "key", "known", "true", "true", "HOST_NOT_REACHED",
      .words = "resolve hostname" },
    { "--hosts=node0,node1", "other", "known", "true", "true", "HOST_REJECTS_LOGIN",
      .words = "Permission denied" },
    { "--hosts=node0,node1", "key", "changed", "true", "true", "HOST_KEY_DIFFERS", .words = "" },
    { "--hosts=node0,node1", "key", "empty", "true", "true", "HOST_KEY_UNKNOWN", .words = "" },
    { "--hosts=node0,node1", "key", "known", "mount -t tmpfs none $ROOT", "umount $ROOT",
      "HOST_HAS_NO_DDPRUN", .words = "node1 has" },
    { "--hosts=node0,node1", "key", "known", "mount --bind $AREA/../old $ROOT/ddprun", "umount $ROOT/ddprun",
      "HOST_VERSION_DIFFERS", .words = "9.9.0, but" },
    { "--hosts=node0,node1", "key", "known", HIDE_CJSON, SHOW_CJSON, "HOST_CANNOT_RUN_DDPRUN",
      .words = "shared libraries", .needs = NEEDS_CJSON },
    { "--hosts=node0,node1", "key", "known", "mount -t tmpfs none $AREA", "umount $AREA",
      "HOST_LACKS_DIRECTORY", .words = "No such file or directory" },
    { "--hosts=node0,node1", "key", "known",
      "mount -t tmpfs -o size=4k none $AREA/logs && head -c 4096 /dev/zero >$AREA/logs/x",
      "umount $AREA/logs", "HOST_DISK_FULL", .words = "No space left on device" },
    { "--hosts=node0,node1", "key", "known", "python3 $NODES/quota_fs.py $AREA/logs >/dev/null 2>&1",
      "umount $AREA/logs", "HOST_QUOTA_FULL", .words = "Disk quota exceeded",
      .needs = "test -c /dev/fuse && command -v python3 >/dev/null" },
    { "--hosts=node0,node1", "key", "known", MAKE_BUSY STOP_SSHD START_SSHD("busy") HOLD_LOGIN,
      "kill $(cat /run/holder) && rm /run/holder && " STOP_SSHD START_SSHD("conf"), "HOST_BUSY",
      .words = "kex_exchange_identification" },
};

/* Run a shell command from a bad_start on node1. Return true if the command succeeds. */
static bool on_node1(const struct hosts *net, const char *command)
{
    char cwd[300];
    return getcwd(cwd, sizeof(cwd)) != NULL &&
           host_sh(&net->host[1], "ROOT=$(dirname %s); AREA=%s/area; NODES=%s/tests/nodes; %s", bin("ddprun"),
                   dir, cwd, command);
}

/* Return the option --ssh with the key and the known_hosts file of `bad`. If a host is not in the known_hosts file, ssh
 * accepts the host's key. An exception is the file named "empty": with this file, ssh rejects every host. */
static const char *ssh_of(const struct bad_start *bad)
{
    static char option[600];
    snprintf(option, sizeof(option),
             "--ssh=/usr/bin/ssh -F none -i %s/%s -o UserKnownHostsFile=%s/%s -o StrictHostKeyChecking=%s",
             dir, bad->key, dir, bad->known, strcmp(bad->known, "empty") == 0 ? "yes" : "accept-new");
    return option;
}

Test(remote, a_host_that_cannot_start_is_one_finding, .timeout = 300)
{
    struct hosts *net = open_hosts(2);
    char cwd[300], logs[320];
    snprintf(cwd, sizeof(cwd), "%s/area/run", dir);
    snprintf(logs, sizeof(logs), "--log_dir=%s/area/logs/job", dir);
    cr_assert(host_sh(
        &net->host[0],
        "cd %s && mkdir -p area/run area/logs && ssh-keygen -q -t ed25519 -N '' -f other && "
        "echo \"node1 $(cut -d' ' -f1,2 other.pub)\" >changed && : >empty && "
        "printf '#!/bin/sh\\nprintf \"\\\\036ddprun here 9.9.0 0 - 10.0.0.1\\\\n\"; exec cat\\n' >old "
        "&& chmod 755 old",
        dir));
    for (size_t i = 0; i < sizeof(bad_starts) / sizeof(bad_starts[0]); i++) {
        const struct bad_start *bad = &bad_starts[i];
        char finding[64];
        const char *argv[] = { bin("ddprun"), bad->hosts, ssh_of(bad), logs, bin("tests/prog/worker"),
                               "say:ran",     NULL };
        if (bad->needs != NULL && !on_node1(net, bad->needs))
            continue;
        snprintf(finding, sizeof(finding), "finding  %s\n", bad->finding);
        cr_assert(on_node1(net, bad->breaks), "%s", bad->breaks);
        struct run_process *p = host_start(&net->host[0], argv, &(struct run_options){ .cwd = cwd });
        struct run_result r = run_wait(p);
        cr_assert(on_node1(net, bad->heals), "%s", bad->heals);
        cr_expect_eq(r.exit_code, 125, "%s: %d: %s", bad->finding, r.exit_code, r.err);
        cr_expect_eq(count(r.err, "finding  HOST_"), 1, "%s: %s", bad->finding, r.err);
        cr_expect_not_null(strstr(r.err, finding), "%s: %s", bad->finding, r.err);
        cr_expect_not_null(strstr(r.err, bad->words), "%s: %s", bad->finding, r.err);
        cr_expect_null(strstr(r.out, "ran"), "%s: %s", bad->finding, r.out);
        expect_nothing_left(net, 0);
        expect_nothing_left(net, 1);
    }
    close_hosts(net);
}

/* --- a host that fails while the job runs --------------------------------------------------------------- */

/* `kills` is a shell command that runs on the host with the index `on`. ddprun must then exit with `exit_code` and
 * print `words`. */
static const struct bad_end {
    const char *kills;
    int on, exit_code;
    const char *words;
} bad_ends[] = {
    { "kill -9 $(pgrep -n -x ssh)", 0, 125, "finding  HOST_LOST\n" },
    { "kill -9 $(pgrep -f '[s]shd.*@notty')", 1, 125, "node1 was lost" },
    { "kill -9 $(pgrep -o -x ddprun)", 1, 125, "node1 was lost" }, /* the relay */
    { "kill -9 $(pgrep -o -f '[o]ne_console')", 1, 125, "node1" }, /* the guardian */
    { "kill -9 $(pgrep -n -f '[o]ne_console')", 1, 125, "node1" }, /* the agent */
    { "kill -HUP $(pgrep -o -x ddprun)", 0, 129, "SIGHUP" },       /* the terminal */
    { "kill -9 $(pgrep -n -f '[s]ay:up')", 1, 137, "rank 1" },     /* a worker */
};

/* Run the command bad->kills on the host with the index bad->on. Expect that no process, file or control group of the
 * job is left on any host within END_MS. Expect that `p`, the ddprun that has started the job, exits with
 * bad->exit_code and prints bad->words. */
static struct run_result expect_bad_end(struct hosts *net, struct run_process *p, const struct bad_end *bad)
{
    const uint64_t fault_ms = clock_ms();
    cr_assert(host_sh(&net->host[bad->on], "%s", bad->kills), "%s", bad->kills);
    for (int k = 0; k < net->count; k++)
        expect_end_since(net, k, fault_ms);
    struct run_result r = run_wait(p);
    /* If 137 is expected, 125 is also right: the part of the job on another host may end before the host of the killed
     * worker. */
    cr_expect(r.exit_code == bad->exit_code || (bad->exit_code == 137 && r.exit_code == 125), "%s: %d: %s",
              bad->kills, r.exit_code, r.err);
    cr_expect_not_null(strstr(r.err, bad->words), "%s: %s", bad->kills, r.err);
    return r;
}

Test(remote, a_killed_process_ends_the_job_and_leaves_nothing, .timeout = 300)
{
    struct hosts *net = open_hosts(3);
    for (size_t i = 0; i < sizeof(bad_ends) / sizeof(bad_ends[0]); i++) {
        struct run_process *p = start_job(net, "--hosts=node[0-2]:1");
        until_up(p, 3);
        expect_bad_end(net, p, &bad_ends[i]);
    }
    close_hosts(net);
}

/* --- a host that gets ddprun for the job ---------------------------------------------------------------- */

/* Start a job whose second host gets ddprun and cJSON by --ship. Each worker prints its ddprun's path. */
static struct run_process *start_shipped(const struct hosts *net)
{
    const char *argv[] = { bin("ddprun"), "--hosts=node0,node1",
                           ssh,           "--ship",
                           NODE_TIMEOUT,  "/bin/sh",
                           "-c",          "echo by $(readlink /proc/$PPID/exe); exec sleep 1000",
                           NULL };
    return host_start(&net->host[0], argv, NULL);
}

Test(remote, a_shipped_program_leaves_no_file_after_a_kill, .timeout = 300)
{
    static const struct bad_end ends[] = {
        { "kill -9 $(pgrep -n -x ssh)", 0, 125, "" },
        { "kill -9 $(pgrep -f '[s]shd.*@notty')", 1, 125, "" },
        { "kill -9 $(pgrep -o -x ddprun)", 1, 125, "" },
        { "kill -9 $(pgrep -n -f '[o]ne_console')", 1, 125, "" },
        { "kill -INT $(pgrep -o -x ddprun)", 0, 130, "" },
    };
    struct hosts *net = open_hosts(2);
    cr_assert(on_node1(net, "! { " NEEDS_CJSON "; } || " HIDE_CJSON));
    cr_assert(host_sh(&net->host[1], "mount -t tmpfs none $(dirname %s)", bin("ddprun")));
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        struct run_process *p = start_shipped(net);
        cr_assert(run_until_output(p, "[node1:1] by /run/user/0/ddprun-ship.", PATIENCE_MS), "%s",
                  run_output(p));
        cr_expect(host_sh(&net->host[1], "! ls -d /run/user/0/ddprun-ship.* 2>/dev/null"));
        expect_bad_end(net, p, &ends[i]);
    }
    close_hosts(net);
}

/* Each kill happens while the script on the second host still waits for the rest of the shipped program. */
Test(remote, a_program_that_is_not_shipped_completely_leaves_no_file, .timeout = 300)
{
    static const struct bad_end ends[] = {
        { "kill -9 $(pgrep -n -x ssh)", 0, 125, "" },
        { "kill -9 $(pgrep -f '[s]shd.*@notty')", 1, 125, "" },
        { "kill -9 $(pgrep -o -f 'ddprun-[s]hip')", 1, 125, "" },
    };
    struct hosts *net = open_hosts(2);
    cr_assert(host_sh(&net->host[1],
                      "at=$(readlink -f $(command -v head)) && cp $at /run/cut && printf '#!/bin/sh\\n"
                      "[ $# = 2 ] || exec /run/cut \"$@\"; touch /run/reads; exec cat\\n' >/run/head && "
                      "chmod 755 /run/head && mount --bind /run/head $at"));
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        struct run_process *p = start_shipped(net);
        cr_assert(host_sh(&net->host[1], "until [ -e /run/reads ]; do sleep 0.1; done; rm /run/reads"));
        struct run_result r = expect_bad_end(net, p, &ends[i]);
        cr_expect_eq(count(r.err, "finding  HOST_"), 1, "%s: %s", ends[i].kills, r.err);
    }
    close_hosts(net);
}

/* --- a tree --------------------------------------------------------------------------------------------- */

/* node1 starts node3 and node5. */
Test(remote, a_tree_of_hosts_ends_with_an_unplugged_inner_host, .timeout = 300)
{
    struct hosts *net = open_hosts(7);
    struct run_process *p = start_job_with(net, "--hosts=node[0-6]:1", "--ssh_fanout=2");
    until_up(p, 7);
    cr_expect(host_sh(&net->host[1], "[ $(pgrep -c -x ssh) = 2 ]"));
    run_signal(p, SIGINT);
    struct run_result r = run_wait(p);
    cr_expect_eq(r.exit_code, 130, "%d: %s", r.exit_code, r.err);
    for (int i = 0; i < 7; i++)
        expect_nothing_left(net, i);
    p = start_job_with(net, "--hosts=node[0-6]:1", "--ssh_fanout=2");
    until_up(p, 7);
    const uint64_t fault_ms = clock_ms();
    host_cable(net, 1, false);
    for (int i = 1; i < 7; i++)
        expect_end_since(net, i, fault_ms);
    r = run_wait(p);
    cr_expect_eq(r.exit_code, 125, "%d: %s", r.exit_code, r.err);
    cr_expect_not_null(strstr(r.err, "node1 was lost"), "%s", r.err);
    cr_expect_eq(count(r.err, "finding  HOST_LOST"), 1, "%s", r.err);
    expect_nothing_left(net, 0);
    close_hosts(net);
}
