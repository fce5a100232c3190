/* ddprun --hosts on hosts with a real sshd each: one command on node 0 starts the job on all, and nothing is left when a host, the
 * network or the terminal's node fails. */
#include "scene.h"

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

/* Wait at most a minute until no worker, relay or ddprun is left on a host. */
static void expect_nothing_left(const struct hosts *net, int i)
{
    cr_expect(host_sh(&net->host[i], "for i in $(seq 600); do ps ax -o args= | grep -v grep | grep -qE "
                                     "'ddprun|prog/worker' || exit 0; "
                                     "sleep 0.1; done; ps ax -o pid,args >&2; exit 1"),
              "%s has processes of the job", net->host[i].name);
}

static struct run_process *start_job_with(const struct hosts *net, const char *list, const char *option)
{
    const char *argv[] = { bin("ddprun"), list,      ssh, option, bin("tests/prog/worker"),
                           "say:up",      "forever", NULL };
    return host_start(&net->host[0], argv,
                      &(struct run_options){ .env = (const char *[]){ "OMP_NUM_THREADS=1", NULL } });
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

Test(remote, eight_hosts_start_and_end_by_one_command, .timeout = 180)
{
    struct hosts *net = open_hosts(8);
    const char *argv[] = { bin("ddprun"), "--hosts=node[0-7]:2",
                           ssh,           bin("tests/prog/worker"),
                           "only:15",     "exit:9",
                           "all",         "forever",
                           NULL };
    struct run_process *p = start_job(net, "--hosts=node[0-7]:2");
    until_up(p, 16);
    cr_expect_not_null(strstr(run_output(p), "[node7:15] up\n"), "%s", run_output(p));
    run_signal(p, SIGINT);
    struct run_result r = run_wait(p);
    cr_expect_eq(r.exit_code, 130, "%d: %s", r.exit_code, r.err);
    p = host_start(&net->host[0], argv, NULL);
    r = run_wait(p);
    cr_expect_eq(r.exit_code, 9, "%d: %s", r.exit_code, r.err);
    cr_expect_not_null(strstr(r.err, "rank 15 on node7 failed first: exit 9"), "%s", r.err);
    for (int i = 0; i < 8; i++)
        expect_nothing_left(net, i);
    close_hosts(net);
}

/* The workers of the second host get the address of the relay there. */
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

/* ssh still works, so the finding of the node without a store reaches the node of the store. */
Test(remote, a_host_that_loses_the_store_is_explained_by_node_0, .timeout = 180)
{
    struct hosts *net = open_hosts(2);
    struct run_process *p = start_on_port(net, "--master_addr=10.9.0.1", "--node_timeout=40");
    until_up(p, 2);
    host_rules(&net->host[0], "add rule inet f in iifname eth0 tcp dport 29500 drop");
    cr_expect(run_until_error(p, "node1 reports: waiting for node 0's store at 10.9.0.1:29500", 100000));
    struct run_result r = run_wait(p);
    cr_expect_neq(r.exit_code, 0, "%s", r.err); /* 123 if node 1 ends first, else 125 */
    cr_expect_not_null(strstr(r.err, "; node1 reports: "), "%s", r.err);
    for (int i = 0; i < 2; i++)
        expect_nothing_left(net, i);
    close_hosts(net);
}

/* The name of the store means another host on node 1, which is quiet and would wait for 15 minutes. */
Test(remote, a_name_that_differs_on_another_host_is_explained_by_node_0, .timeout = 180)
{
    struct hosts *net = open_hosts(2);
    host_names(&net->host[1], "127.0.0.1 localhost\n127.0.1.1 node0\n");
    struct run_process *p = start_on_port(net, "--master_addr=node0", "--contain=auto");
    cr_expect(run_until_error(p, "node1 reports: waiting for node 0's store at node0:29500", 100000));
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
    host_cable(net, 1, false);
    struct run_result r = run_wait(p);
    cr_expect_eq(r.exit_code, 125, "%d: %s", r.exit_code, r.err);
    cr_expect_not_null(strstr(r.err, "node1"), "%s", r.err);
    for (int i = 0; i < 3; i++)
        expect_nothing_left(net, i);
    close_hosts(net);
}

Test(remote, a_starter_that_is_unplugged_leaves_nothing, .timeout = 180)
{
    struct hosts *net = open_hosts(3);
    struct run_process *p = start_job(net, "--hosts=node[1-2]:1");
    until_up(p, 2);
    host_cable(net, 0, false);
    for (int i = 1; i < 3; i++)
        expect_nothing_left(net, i);
    struct run_result r = run_wait(p);
    cr_expect_neq(r.exit_code, 0);
    close_hosts(net);
}

/* The first host resolves its own name to 127.0.1.1, as Debian's installer does, and has a bridge with an address
 * that no other host reaches. */
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

/* A firewall between the hosts lets only ssh pass. */
Test(remote, hosts_that_do_not_reach_each_other_are_named, .timeout = 180)
{
    struct hosts *net = open_hosts(2);
    host_rules(&net->host[1], "add rule inet f out tcp dport 1024-65535 tcp sport 1024-65535 drop");
    struct run_process *p = start_job(net, "--hosts=node[0-1]:1");
    struct run_result r = run_wait(p);
    cr_expect_eq(r.exit_code, 125, "%d: %s", r.exit_code, r.err);
    cr_expect_not_null(strstr(r.err, "NO_COMMON_ADDRESS"), "%s", r.err);
    cr_expect_not_null(strstr(r.err, "of node0 (10.9.0.1"), "%s", r.err);
    close_hosts(net);
}

static int count(const char *text, const char *piece)
{
    int n = 0;
    for (; (text = strstr(text, piece)) != NULL; text += strlen(piece))
        n++;
    return n;
}

/* --- a host that cannot start ------------------------------------------------------------------------------------ */

/* `breaks` runs on node1 and `heals` after the job; ROOT is the folder of the programs, AREA that of the job's directory. */
struct bad_start {
    const char *hosts, *key, *known; /* files in the test's directory: the user's key and known_hosts */
    const char *breaks, *heals;
    const char *finding, *words;
};

static const struct bad_start bad_starts[] = {
    { "--hosts=node0,node1", "key", "known", "kill $(cat /run/sshd.pid)",
      "/usr/sbin/sshd -f $AREA/../conf -E $AREA/../log1; until [ -s /run/sshd.pid ]; do sleep 0.02; done",
      "HOST_NOT_REACHED", "Connection refused" },
    { "--hosts=node0,nowhere.invalid", "key", "known", "true", "true", "HOST_NOT_REACHED",
      "resolve hostname" },
    { "--hosts=node0,node1", "other", "known", "true", "true", "HOST_REJECTS_LOGIN", "Permission denied" },
    { "--hosts=node0,node1", "key", "changed", "true", "true", "HOST_KEY_DIFFERS", "" },
    { "--hosts=node0,node1", "key", "empty", "true", "true", "HOST_KEY_DIFFERS", "" },
    { "--hosts=node0,node1", "key", "known", "mount -t tmpfs none $ROOT", "umount $ROOT",
      "HOST_HAS_NO_DDPRUN", "node1 has" },
    { "--hosts=node0,node1", "key", "known", "mount --bind $AREA/../old $ROOT/ddprun", "umount $ROOT/ddprun",
      "HOST_NOT_READY", "version 9.9.0" },
    { "--hosts=node0,node1", "key", "known",
      "mount --bind /dev/null $(ldd $ROOT/ddprun | sed -n 's/.*libcjson.* => \\(.*\\) (.*/\\1/p')",
      "umount $(grep -o ' /[^ ]*libcjson[^ ]*' /proc/mounts)", "HOST_CANNOT_RUN_DDPRUN", "shared libraries" },
    { "--hosts=node0,node1", "key", "known", "mount -t tmpfs none $AREA", "umount $AREA",
      "HOST_LACKS_DIRECTORY", "No such file or directory" },
    { "--hosts=node0,node1", "key", "known",
      "mount -t tmpfs -o size=4k none $AREA/logs && head -c 4096 /dev/zero >$AREA/logs/x",
      "umount $AREA/logs", "HOST_DISK_FULL", "No space left on device" },
};

/* Run a command of a row on node1. */
static void on_node1(const struct hosts *net, const char *command)
{
    cr_assert(host_sh(&net->host[1], "ROOT=$(dirname %s); AREA=%s/area; %s", bin("ddprun"), dir, command),
              "%s", command);
}

/* Return the option for ssh of a row. Only an empty known_hosts makes ssh reject a new key. */
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
        snprintf(finding, sizeof(finding), "finding  %s\n", bad->finding);
        on_node1(net, bad->breaks);
        struct run_process *p = host_start(&net->host[0], argv, &(struct run_options){ .cwd = cwd });
        struct run_result r = run_wait(p);
        on_node1(net, bad->heals);
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

/* --- a host that fails while the job runs ---------------------------------------------------------------------------- */

/* `kills` runs on a host. ONE has the pid of the only process that matches, or of the eldest. */
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

Test(remote, a_killed_process_ends_the_job_and_leaves_nothing, .timeout = 300)
{
    struct hosts *net = open_hosts(3);
    for (size_t i = 0; i < sizeof(bad_ends) / sizeof(bad_ends[0]); i++) {
        const struct bad_end *bad = &bad_ends[i];
        struct run_process *p = start_job(net, "--hosts=node[0-2]:1");
        until_up(p, 3);
        cr_assert(host_sh(&net->host[bad->on], "%s", bad->kills), "%s", bad->kills);
        struct run_result r = run_wait(p);
        /* another host may end before the host of the killed agent */
        cr_expect(r.exit_code == bad->exit_code || (bad->exit_code == 137 && r.exit_code == 125),
                  "%s: %d: %s", bad->kills, r.exit_code, r.err);
        cr_expect_not_null(strstr(r.err, bad->words), "%s: %s", bad->kills, r.err);
        for (int k = 0; k < 3; k++)
            expect_nothing_left(net, k);
    }
    close_hosts(net);
}

/* --- a tree ------------------------------------------------------------------------------------------------------------ */

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
    host_cable(net, 1, false);
    r = run_wait(p);
    cr_expect_eq(r.exit_code, 125, "%d: %s", r.exit_code, r.err);
    cr_expect_not_null(strstr(r.err, "node1 was lost"), "%s", r.err);
    cr_expect_eq(count(r.err, "finding  HOST_LOST"), 1, "%s", r.err);
    for (int i = 0; i < 7; i++)
        expect_nothing_left(net, i);
    close_hosts(net);
}
