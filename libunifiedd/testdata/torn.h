/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torn.h: what the tests of torn reads share. A writer writes at full rate, and a reader reads. One that checks, as the library
 * does, must return no mixture of two writes, and must have seen conflicts. One that does not check must return mixtures:
 * otherwise the test could not fail.
 */
#ifndef TORN_H
#define TORN_H

#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* With one processor conflicts are rare. */
enum { TORN_SECONDS = 60 };

/* look is what one read returns. */
enum look { SOUND, CONFLICT, MIXTURE };

/* torn is a case: one of its writes, and a read with or without the checks. */
struct torn {
	const char *name;
	void (*write)(uint64_t n);
	enum look (*read)(uint64_t turn, int check);
};

static atomic_bool torn_stop;

static void *torn_write(void *t)
{
	const struct torn *c = t;

	for (uint64_t n = 0; !atomic_load_explicit(&torn_stop, memory_order_relaxed); n++) {
		c->write(n);
		if (n % 64 == 0)
			sched_yield(); /* with one processor, too, reads come between writes */
	}
	return NULL;
}

/* torn_reads reads until reads reads were sound and there was a conflict, or a mixture if there is no check. It returns whether the
 * case passes. */
static int torn_reads(const struct torn *c, uint64_t reads, int check)
{
	uint64_t count[3] = {0};
	time_t end = time(NULL) + TORN_SECONDS;

	for (uint64_t turn = 0; turn % 1024 != 0 || time(NULL) < end; turn++) {
		count[c->read(turn, check)]++;
		if (check ? count[SOUND] >= reads && count[CONFLICT] > 0 : count[MIXTURE] > 0)
			break;
		if (turn % 1024 == 0)
			sched_yield();
	}
	printf("%s %s: %" PRIu64 " sound, %" PRIu64 " conflicts, %" PRIu64 " mixtures\n", c->name, check ? "checked" : "unchecked",
	       count[SOUND], count[CONFLICT], count[MIXTURE]);
	return check ? count[MIXTURE] == 0 && count[CONFLICT] > 0 && count[SOUND] >= reads : count[MIXTURE] > 0;
}

/* torn_run runs a case. It returns 0 if it passes. */
static int torn_run(const struct torn *c, uint64_t reads)
{
	struct torn copy = *c;
	pthread_t writer;

	atomic_store(&torn_stop, 0);
	if (pthread_create(&writer, NULL, torn_write, &copy) != 0)
		return 1;
	int passes = torn_reads(c, reads, 1) & torn_reads(c, reads, 0);
	atomic_store(&torn_stop, 1);
	pthread_join(writer, NULL);
	if (!passes)
		fprintf(stderr, "%s: failed\n", c->name);
	return !passes;
}

/* torn_random returns the next of a fixed series of numbers, of which many have few bits. */
static inline uint64_t torn_random(void)
{
	static uint64_t x = 88172645463325252u;

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	return x >> (x % 64);
}

/* torn_spoil writes numbers into memory of a multiple of 8 bytes, at some places. */
static inline void torn_spoil(uint8_t *memory, size_t size, int words)
{
	for (int i = 0; i < words; i++) {
		uint64_t v = torn_random();
		memcpy(memory + torn_random() % (size / 8) * 8, &v, 8);
	}
}

/* torn_argument returns how many reads the command line asks for. */
static uint64_t torn_argument(int argc, char **argv)
{
	return argc > 1 ? strtoull(argv[1], NULL, 0) : 200000;
}

#endif
