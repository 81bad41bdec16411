/* SPDX-License-Identifier: Apache-2.0 */
/*
 * soaker: measure how long processors are idle.
 *
 *	soaker CPU...
 *
 * On each CPU a thread that runs only when no other thread wants to (SCHED_IDLE) reads the clock
 * in a loop. If two readings are close together, the thread had the CPU, so the CPU was idle. If
 * they are further apart, something else had it: a program, an interrupt, or the host of this
 * machine. No CPU sleeps during the measurement, so the times never include a wake-up.
 *
 * For each line on standard input it prints one line: the nanoseconds since it began, and the sum
 * of the nanoseconds that each CPU was idle. It ends when its input ends.
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A reading takes some 25 ns. A turn of another thread or an interrupt takes longer than this. */
enum { GAP_NS = 500, MOST = 1024 };

struct processor {
	_Alignas(128) _Atomic uint64_t idle; /* the thread is the writer */
	pthread_t thread;
	int cpu;
};

static struct processor processors[MOST];

static uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void *soak(void *arg)
{
	struct processor *p = arg;
	uint64_t idle = 0, last = now();

	for (;;) {
		uint64_t t = now();

		if (t - last < GAP_NS)
			idle += t - last;
		last = t;
		atomic_store_explicit(&p->idle, idle, memory_order_relaxed);
	}
	return NULL;
}

static void must(int error, const char *what)
{
	if (error) {
		fprintf(stderr, "soaker: %s: %s\n", what, strerror(error));
		exit(1);
	}
}

static void start(struct processor *p)
{
	struct sched_param none = { 0 };
	pthread_attr_t attr;
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(p->cpu, &set);
	must(pthread_attr_init(&attr), "prepare a thread");
	must(pthread_attr_setaffinity_np(&attr, sizeof(set), &set), "pin a thread");
	must(pthread_create(&p->thread, &attr, soak, p), "start a thread");
	must(pthread_setschedparam(p->thread, SCHED_IDLE, &none), "have a thread yield to all others");
	pthread_attr_destroy(&attr);
}

int main(int argc, char **argv)
{
	uint64_t begin = now();
	char line[16];
	int n = 0;

	if (argc < 2 || argc > MOST) {
		fprintf(stderr, "usage: soaker CPU...\n");
		return 2;
	}
	for (; n < argc - 1; n++) {
		processors[n].cpu = atoi(argv[n + 1]);
		start(&processors[n]);
	}
	while (fgets(line, sizeof(line), stdin)) {
		uint64_t idle = 0;

		for (int i = 0; i < n; i++)
			idle += atomic_load_explicit(&processors[i].idle, memory_order_relaxed);
		printf("%" PRIu64 " %" PRIu64 "\n", now() - begin, idle);
		fflush(stdout);
	}
	return 0;
}
