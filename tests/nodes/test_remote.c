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

static struct run_process *start_job(const struct hosts *net, const char *list)
{
    const char *argv[] = { bin("ddprun"), list, ssh, bin("tests/prog/worker"), "say:up", "forever", NULL };
    return host_start(&net->host[0], argv,
                      &(struct run_options){ .env = (const char *[]){ "OMP_NUM_THREADS=1", NULL } });
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
    run_free(&r);
    p = host_start(&net->host[0], argv, NULL);
    r = run_wait(p);
    cr_expect_eq(r.exit_code, 9, "%d: %s", r.exit_code, r.err);
    cr_expect_not_null(strstr(r.err, "rank 15 on node7 failed first: exit 9"), "%s", r.err);
    run_free(&r);
    for (int i = 0; i < 8; i++)
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
    run_free(&r);
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
    run_free(&r);
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
    run_free(&r);
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
    cr_expect_not_null(strstr(r.err, "node1 reaches no address of node0 (10.9.0.1"), "%s", r.err);
    run_free(&r);
    close_hosts(net);
}
