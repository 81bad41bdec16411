/* SPDX-License-Identifier: Apache-2.0 */
/* What the programs of this directory share: how they end, read numbers and map memory. */
#ifndef PEER_H
#define PEER_H

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

enum { HUGE_PAGE = 2 << 20 };

static inline _Noreturn void die(const char *step, int error)
{
	fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, step, strerror(error));
	exit(1);
}

static inline unsigned long number(const char *text, const char *what)
{
	char *end;
	errno = 0;
	unsigned long n = strtoul(text, &end, 10);

	if (errno || end == text || *end || n > UINT32_MAX) {
		fprintf(stderr, "%s: %s %s: want a number\n", program_invocation_short_name, what, text);
		exit(2);
	}
	return n;
}

/*
 * map_huge maps huge pages, as the other side does. size becomes what was mapped.
 * Another program may have taken the reserved pages, until the test replaces them:
 * it tries for two seconds.
 */
static inline void *map_huge(size_t *size)
{
	void *memory;
	int tries;

	*size = (*size + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
	for (tries = 0; tries < 200; tries++) {
		memory = mmap(NULL, *size, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_POPULATE, -1, 0);
		if (memory != MAP_FAILED)
			return memory;
		if (errno != ENOMEM)
			break;
		usleep(10000);
	}
	die("map huge pages (see /proc/sys/vm/nr_hugepages)", errno);
}

#endif
