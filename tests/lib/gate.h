/* gate.h -- workers that stand still until the test, or all the others, are so far. Whatever a test wants to do to a job
 * that runs is done while its workers stand there: neither can the job be over before, nor need anybody guess how long a
 * start takes.
 *
 *     gate_shut();
 *     struct run_process *p = JOB_START("sh", "-c", "echo up; " AT_GATE);
 *     ... until "up" is read, and what has been done to the job shows ...
 *     gate_open();
 *
 * The gate's path is in the environment, as GATE, from gate_shut() to gate_gone(). */
#ifndef TESTS_LIB_GATE_H
#define TESTS_LIB_GATE_H

/* For a worker's shell: until the gate is open. */
#define AT_GATE "until [ -e $GATE ]; do sleep 0.02; done"

/* For a worker's shell: until all workers of this attempt have come here. */
#define ALL_HERE                                                                                          \
    ">$GATE.$TORCHELASTIC_RESTART_COUNT.$RANK; until [ $(ls -d $GATE.$TORCHELASTIC_RESTART_COUNT.* | wc " \
    "-l) "                                                                                                \
    "-ge $WORLD_SIZE ]; do sleep 0.02; done"

void gate_shut(void);
void gate_open(void);

/* Take away what gate_shut has made; nothing when there is none. */
void gate_gone(void);

#endif
