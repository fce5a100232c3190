/* Jobs of two nodes with --encrypt. The tests check what is readable on the network, and which nodes can join. They
 * also check what an attacker can do on the path, on a third host or at the store's address. */
#include "job.h"
#include "scene.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GREETING "00cef7853c"
#define KEY_K    "01000000000000006b"
#define MARK     "marker-of-this-test"

static void expect_sh(const struct host *host, const char *text, const char *command)
{
    const char *argv[] = { "/bin/sh", "-c", command, NULL };
    struct run_result r = host_run(host, argv);
    cr_expect(strstr(r.out, text) != NULL || strstr(r.err, text) != NULL, "%s: no '%s' in %s%s", command,
              text, r.out, r.err);
}

/* --- on the network ----------------------------------------------------------------------------------------- */

/* Listens on the path for the store's packets and the barrier's name. */
static const char listener[] = "import signal,socket,sys\n"
                               "s=socket.socket(socket.AF_PACKET,socket.SOCK_RAW,socket.ntohs(3))\n"
                               "s.bind(('eth0',0)); s.settimeout(0.1)\n"
                               "seen={'packets':0,'marks':0}\n"
                               "def end(*unused):\n"
                               "    print('packets',seen['packets']>10,'marks',seen['marks']>0)\n"
                               "    sys.exit()\n"
                               "signal.signal(signal.SIGTERM,end)\n"
                               "print('listening',flush=True)\n"
                               "while True:\n"
                               "    try: p=s.recv(65536)\n"
                               "    except socket.timeout: continue\n"
                               "    seen['packets']+=b'\\x73\\x3c' in p[34:38]\n"
                               "    seen['marks']+=b'" MARK "' in p\n";

static void listen_on_path(struct play *play)
{
    const char *argv[] = { "/usr/bin/python3", "-c", listener, NULL };
    play->other = host_start(&play->net->host[1], argv, NULL);
    cr_assert(run_until_output(play->other, "listening", PATIENCE_MS));
}

static void expect_listener(struct play *play, const char *text)
{
    run_signal(play->other, SIGTERM);
    struct run_result r = run_wait(play->other);
    play->other = NULL;
    cr_expect_not_null(strstr(r.out, text), "%s%s", r.out, r.err);
    after_stop_all(play);
}

static void nothing_is_readable(struct play *play)
{
    expect_listener(play, "packets True marks False");
}

static void all_is_readable(struct play *play)
{
    expect_listener(play, "packets True marks True");
}

/* For the action `sum`, the ranks of libddp connect to each other directly. So each rank must learn the address of its
 * own node. The rank must learn this address although it reaches the store only through the relay. */
#define MEMBER "member barrier:" MARK " sum say:met forever"

SCENE(encrypt, a_listener_reads_no_key, .options = "--encrypt", .program = MEMBER, .before = listen_on_path,
      .until = "met", .after = nothing_is_readable, .never = "rejected",
      .node = { { .exit = 143 }, { .exit = 143 } })

/* The same listener reads every key of a job without --encrypt. Otherwise the test above could never fail. */
SCENE(encrypt, a_listener_reads_every_key_of_a_plain_job, .program = MEMBER, .before = listen_on_path,
      .until = "met", .after = all_is_readable, .node = { { .exit = 143 }, { .exit = 143 } })

/* A restart may stop a worker of node 0 before the store has accepted the connection of this worker. The store then
 * rejects the connection. */
SCENE(encrypt, an_elastic_job_restarts, .elastic = true,
      .options = "--encrypt --nnodes=2:2 --rdzv_backend=c10d --rdzv_id=el --rdzv_endpoint=10.9.0.1 "
                 "--max_restarts=2 --restart_backoff=200ms",
      .program = "member sum say:met only:3 attempt:0 exit:7 all sum barrier:end say:again",
      .says = "starting attempt 1", .never = "confirmed within", .within_ms = 60000,
      .node = { { .prints = "met|met|again|again" }, { .prints = "met|met|again|again" } })

/* Reset the agent's connection. The new connection is encrypted, too. */
static void reset_to_the_agent(struct play *play)
{
    host_rules(&play->net->host[1], "add rule inet f out oifname eth0 tcp dport 29500 reject with tcp reset");
    cr_assert(run_until_error(play->node[1], "broke: connection reset by peer", PATIENCE_MS));
    host_heal(&play->net->host[1]);
    cr_assert(run_until_error(play->node[1], "works again", PATIENCE_MS));
}

SCENE(encrypt, a_broken_connection_is_made_again, .options = "--encrypt --node_timeout=60s", .until = "met",
      .program = MEMBER, .before = listen_on_path, .fault = reset_to_the_agent, .after = nothing_is_readable,
      .node = { { .exit = 143 }, { .exit = 143, .ends = "works again" } })

/* Change four encrypted bytes of a message of the agent or of the store, in one packet. The receiver detects the
 * change, and the agent connects again. */
static void change_a_packet(const struct host *from, const char *port, struct run_process *agent)
{
    host_rules(from,
               "add rule inet f out oifname eth0 tcp %s 29500 meta length > 100 limit rate 1/day burst 1 "
               "packets @th,400,32 set 0x5a5a5a5a",
               port);
    cr_assert(run_until_error(agent, "works again", PATIENCE_MS));
    host_heal(from);
}

static void change_a_packet_of_the_agent(struct play *play)
{
    change_a_packet(&play->net->host[1], "dport", play->node[1]);
}

static void change_a_packet_of_the_store(struct play *play)
{
    change_a_packet(&play->net->host[0], "sport", play->node[1]);
}

SCENE(encrypt, a_changed_message_of_the_agent_ends_no_job, .options = "--encrypt --node_timeout=30s",
      .until = "up", .fault = change_a_packet_of_the_agent, .after = after_stop_all,
      .node = { { .exit = 143 }, { .exit = 143, .ends = "works again" } })

SCENE(encrypt, a_changed_message_of_the_store_ends_no_job, .options = "--encrypt --node_timeout=30s",
      .until = "up", .fault = change_a_packet_of_the_store, .after = after_stop_all,
      .node = { { .exit = 143 }, { .exit = 143, .ends = "works again" } })

/* Kill only an agent. If a guardian is killed, its agent still closes the connection properly. If an agent is killed,
 * the kernel sends a FIN or a reset. An attacker can forge a FIN and a reset, so the store does not count the node as
 * lost at once. The store waits until the timeout for a new connection of the agent. */
static void kill_agent(struct play *play)
{
    cr_assert(host_sh(&play->net->host[1], "kill -KILL $(pgrep -n -x ddprun)"));
}

SCENE(encrypt, a_killed_agent_is_lost_after_the_timeout, .options = "--encrypt", .until = "up",
      .fault = kill_agent, .node = { { .exit = 125, .says = "connection|again within" }, { .exit = ENDED } })

/* --- both sides must encrypt --------------------------------------------------------------------------------- */

SCENE(encrypt, a_plain_agent_is_told_that_the_store_encrypts, .options = "--timeout=13",
      .within_ms = CONNECTIONS,
      .node = { { .options = "--encrypt", .exit = 125 }, { .exit = 125, .says = "STORE_ENCRYPTED" } })

SCENE(encrypt, a_plain_store_is_named, .options = "--timeout=13", .within_ms = CONNECTIONS,
      .node = { { .exit = 125 }, { .options = "--encrypt", .exit = 125, .says = "STORE_NOT_ENCRYPTED" } })

static void make_other_secret(struct play *play)
{
    cr_assert(host_sh(&play->net->host[1], "%s --make_secret /run/other", bin("ddprun")));
}

static void expect_reason(struct play *play)
{
    char command[256];
    snprintf(command, sizeof(command), "%s --addr 10.9.0.1:29500 rejects", bin("ddpctl"));
    expect_sh(&play->net->host[0], "secrets differ: sha256 ", command);
}

SCENE(encrypt, another_secret_is_rejected, .options = "--encrypt --timeout=13", .before = make_other_secret,
      .within_ms = CONNECTIONS, .after = expect_reason,
      .node = { { .exit = 125 },
                { .options = "--secret_file=/run/other", .exit = 125, .says = "TLS_REJECTED" } })

/* --- attackers ----------------------------------------------------------------------------------------------- */

/* Start a server with a certificate in place of the secret. */
static void serve_with_certificate(struct play *play)
{
    static const char command[] =
        "cd /run && openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=n0 "
        "-days 2 "
        "-out cert -keyout key >/dev/null 2>&1 && echo serving && "
        "exec openssl s_server -accept 10.9.0.1:29500 -cert cert -key key -tls1_3 </dev/zero";
    const char *argv[] = { "/bin/sh", "-c", command, NULL };
    play->other = host_start(&play->net->host[0], argv, NULL);
    cr_assert(run_until_output(play->other, "serving", PATIENCE_MS));
}

/* Expect that the agent has sent no request: s_server prints every decrypted byte. */
static void expect_nothing_sent(struct play *play)
{
    run_signal(play->other, SIGKILL);
    struct run_result r = run_wait(play->other);
    play->other = NULL;
    cr_expect_null(strstr(r.out, "hello"), "%s", r.out);
    after_stop_all(play);
}

SCENE(encrypt, a_server_with_a_certificate_gets_nothing, .options = "--encrypt --timeout=300",
      .before = serve_with_certificate, .within_ms = CONNECTIONS, .after = expect_nothing_sent,
      .node = { { .by_hand = true }, { .exit = ENDED, .says = "TLS_REJECTED" } })

#define ASK_BEFORE_TLS "00cef7853c8302000000000000000204"

static void attack_from_third_host(struct play *play)
{
    const struct host *third = &play->net->host[2];
    char command[512];
    static const char *const plain[] = { "03" KEY_K, "01" KEY_K "010000000000000076",
                                         "820f000000000000007b226f" };
    for (size_t i = 0; i < sizeof(plain) / sizeof(plain[0]); i++) {
        snprintf(command, sizeof(command), "%s 10.9.0.1 29500 " GREETING "%s", bin("tests/prog/stranger"),
                 plain[i]);
        expect_sh(third, "closed after 7 bytes: 15030300020273", command);
    }
    /* Before TLS, the store answers one request for MUNGE's credential. The store answers a second request with a TLS
     * alert. */
    snprintf(command, sizeof(command), "%s 10.9.0.1 29500 " ASK_BEFORE_TLS, bin("tests/prog/stranger"));
    expect_sh(third, "closed after 10 bytes: 02000000000000000207", command);
    snprintf(command, sizeof(command), "%s 10.9.0.1 29500 " ASK_BEFORE_TLS ASK_BEFORE_TLS,
             bin("tests/prog/stranger"));
    expect_sh(third, "closed after 17 bytes: 0200000000000000020715030300020273", command);
    static const char *const options[] = {
        "-tls1_3", "-tls1_2", "-tls1_3 -psk 00112233 -psk_identity x",
        "-tls1_3 -psk 00112233 -psk_identity 'ddprun1 0123456789abcdef none'"
    };
    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
        snprintf(command, sizeof(command),
                 "printf '\\0\\316\\367\\205\\074' | openssl s_client -connect 10.9.0.1:29500 %s 2>&1; "
                 "echo code $?",
                 options[i]);
        expect_sh(third, "code 1", command);
    }
    snprintf(command, sizeof(command), "%s --addr 10.9.0.1:29500 --timeout 20 --secret_file %s status",
             bin("ddpctl"), play->secret);
    expect_sh(third, "use --encrypt", command);
    snprintf(command, sizeof(command),
             "%s --addr 10.9.0.1:29500 --timeout 20 --encrypt --secret_file %s status", bin("ddpctl"),
             play->secret);
    expect_sh(third, "world size 4", command);
    snprintf(
        command, sizeof(command),
        "%s --make_secret /run/other && %s --addr 10.9.0.1:29500 --encrypt --secret_file /run/other status",
        bin("ddprun"), bin("ddpctl"));
    expect_sh(third, "TLS handshake", command);
}

static void after_rejects(struct play *play)
{
    char command[256];
    snprintf(command, sizeof(command), "%s --addr 10.9.0.1:29500 rejects", bin("ddpctl"));
    expect_sh(&play->net->host[0], "10.9.0.3", command);
    after_stop_all(play);
}

SCENE(encrypt, a_third_host_gets_no_answer, .hosts = 3, .options = "--nnodes=2 --encrypt", .until = "up",
      .fault = attack_from_third_host, .after = after_rejects,
      .node = { { .exit = 143 }, { .exit = 143 }, { .by_hand = true } })

/* --- the relay ----------------------------------------------------------------------------------------------- */

/* Shell code that checks MASTER_ADDR and MASTER_PORT on node 1. */
#define RELAY                                                                         \
    "eval $(tr '\\0' '\\n' </proc/$(pgrep -n -x worker)/environ | grep '^MASTER_'); " \
    "test $MASTER_PORT != 29500 && test $MASTER_ADDR = 10.9.0.2 || echo no relay; "

static void use_relay(const struct host *host, const char *as, const char *bytes, const char *text)
{
    char command[1024];
    snprintf(command, sizeof(command), RELAY "%s %s $MASTER_ADDR $MASTER_PORT " GREETING "%s", as,
             bin("tests/prog/stranger"), bytes);
    expect_sh(host, text, command);
}

/* Claim `rank` through the relay on `host`, as a process of the job's user. Expect `text`. The store accepts only a
 * rank of this host. */
static void claim(const struct host *host, int rank, const char *text)
{
    char json[128], hex[320];
    const int len =
        snprintf(json, sizeof(json),
                 "{\"role\":\"worker\",\"job\":\"demo\",\"attempt\":0,\"rank\":%d,\"world_size\":4}", rank);
    size_t n = (size_t)snprintf(hex, sizeof(hex), "80%02x00000000000000", len);
    for (int k = 0; k < len; k++)
        n += (size_t)snprintf(hex + n, sizeof(hex) - n, "%02x", (unsigned)json[k]);
    use_relay(host, "", hex, text);
}

static void attack_relay(struct play *play)
{
    const struct host *node = &play->net->host[1];
    char command[1024];
    use_relay(node, "", "0401000000000000006e0100000000000000", "after 8 bytes: 0100000000000000");
    claim(node, 3, "open after 9 bytes: 000000000000000000");
    claim(node, 0, "bytes: 01");
    use_relay(node, "setpriv --reuid=65534 --regid=65534 --clear-groups",
              "0401000000000000006e0100000000000000", "closed after 0 bytes");
    snprintf(command, sizeof(command),
             RELAY "echo $MASTER_PORT >"
                   "/tmp/ddprun-test-relay-%d",
             (int)getpid());
    expect_sh(node, "", command);
    snprintf(command, sizeof(command),
             "timeout 3 %s 10.9.0.2 $(cat /tmp/ddprun-test-relay-%d) 00; echo code $?; rm "
             "/tmp/ddprun-test-relay-%d",
             bin("tests/prog/stranger"), (int)getpid(), (int)getpid());
    expect_sh(&play->net->host[0], "code 124", command);
    snprintf(command, sizeof(command), RELAY "%s $MASTER_ADDR $MASTER_PORT many 100",
             bin("tests/prog/stranger"));
    expect_sh(node, "many done: 100", command);
}

SCENE(encrypt, only_the_jobs_user_may_use_the_relay, .options = "--encrypt --rdzv_id=demo", .until = "up",
      .fault = attack_relay, .after = after_stop_all, .node = { { .exit = 143 }, { .exit = 143 } })

/* --- OpenSSL ------------------------------------------------------------------------------------------------- */

/* Hide OpenSSL's library. */
static void hide_openssl(struct play *play)
{
    cr_assert(
        host_sh(&play->net->host[1],
                "for f in $(ldconfig -p | sed -n 's/.*libssl.so.*=> //p'); do mount --bind /dev/null $f; "
                "done"));
}

SCENE(encrypt, a_missing_openssl_is_an_error, .options = "--encrypt --timeout=13", .before = hide_openssl,
      .within_ms = CONNECTIONS,
      .node = { { .exit = 125 },
                { .exit = 125, .says = "cannot load libssl.so.3 or libssl.so.1.1; install OpenSSL" } })

/* --- PyTorch ------------------------------------------------------------------------------------------------- */

static const char torch_program[] = "import os,sys,time\n"
                                    "import torch, torch.distributed as dist\n"
                                    "os.environ['GLOO_SOCKET_IFNAME']='eth0'\n"
                                    "dist.init_process_group('gloo')\n"
                                    "t=torch.ones(1000)\n"
                                    "dist.all_reduce(t)\n"
                                    "big=['x'*300000*(dist.get_rank()+1)]\n"
                                    "out=[None]*dist.get_world_size()\n"
                                    "dist.all_gather_object(out,big)\n"
                                    "store=dist.distributed_c10d._get_default_store()\n"
                                    "store.set('big%d'%dist.get_rank(),b'y'*3000000)\n"
                                    "got=store.get('big%d'%((dist.get_rank()+1)%4))\n"
                                    "print('met',int(t[0]),[len(o[0]) for o in out][3],len(got),flush=True)\n"
                                    "dist.barrier()\n"
                                    "time.sleep(1000)\n";

static char torch_file[64];

static void write_torch(struct play *play)
{
    (void)play;
    snprintf(torch_file, sizeof(torch_file), "/tmp/ddprun-test-encrypt.py");
    FILE *file = fopen(torch_file, "w");
    cr_assert(file != NULL && fputs(torch_program, file) >= 0 && fclose(file) == 0);
}

/* Expect that the store finds the rank of each client, although the clients use the relay. */
static void expect_ranks(struct play *play)
{
    char command[256];
    for (int i = 0; i < 2; i++)
        cr_expect_not_null(strstr(run_output(play->node[i]), "met 4 1200000 3000000"), "%s",
                           run_output(play->node[i]));
    snprintf(command, sizeof(command), "%s --addr 10.9.0.1:29500 status", bin("ddpctl"));
    expect_sh(&play->net->host[0], "3  connected  node1 ", command);
    unlink(torch_file);
    after_stop_all(play);
}

Test(encrypt, pytorch_meets_through_the_relay)
{
    torch_skip_without();
    torch_skip_sanitized();
    scene_play(&(const struct scene){ .name = "pytorch_meets_through_the_relay",
                                      .options = "--encrypt",
                                      .program = "/usr/bin/python3 /tmp/ddprun-test-encrypt.py",
                                      .before = write_torch,
                                      .until = "met",
                                      .never = "rejected",
                                      .after = expect_ranks,
                                      .node = { { .exit = ENDED }, { .exit = ENDED } } });
}
