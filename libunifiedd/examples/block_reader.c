/* SPDX-License-Identifier: Apache-2.0 */
/*
 * block_reader: copies the file or device that a flow serves to standard output.
 *
 *	block_reader PROGRAM FLOW [SOCKET [OFFSET [LENGTH]]]
 *
 * It keeps as many reads under way as the flow allows, at most 256, and writes each block from the memory into which the disk has
 * read it. OFFSET and LENGTH are multiples of the file's blocks; without them it copies all. It goes on when the daemon has been
 * started again.
 *
 *	cc -o block_reader block_reader.c $(pkg-config --cflags --libs unifiedd)
 */
#include <unifiedd.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { WINDOW = 256 };

static ufd_message came[WINDOW]; /* answers that came before those of earlier offsets, by number of the block */
static int has_come[WINDOW];

/* part is what is copied: blocks of one request each, of which the last one may be shorter. */
struct part {
	uint64_t begin, end;
	uint32_t block;
};

static uint64_t offset_of(const struct part *a, uint64_t n)
{
	return a->begin + n * a->block;
}

static uint64_t length_of(const struct part *a, uint64_t n)
{
	uint64_t left = a->end - offset_of(a, n);

	return left < a->block ? left : a->block;
}

/* ask requests blocks from *next on, at most WINDOW behind those that are written. */
static void ask(ufd_port *port, const struct part *a, uint64_t written, uint64_t *next)
{
	while (offset_of(a, *next) < a->end && *next < written + WINDOW) {
		if (ufd_request(port, offset_of(a, *next), (uint32_t)length_of(a, *next), NULL) != 0)
			return; /* as many as possible, or ufd_poll says what is wrong */
		++*next;
	}
}

/* write_out writes the blocks that have come and have their turn. It returns 0, or -1 if standard output takes no more. */
static int write_out(ufd_port *port, uint64_t *written)
{
	for (; has_come[*written % WINDOW]; ++*written) {
		ufd_message *m = &came[*written % WINDOW];
		if (fwrite(m->data, 1, m->length, stdout) != m->length)
			return -1;
		ufd_release(port, m, 1);
		has_come[*written % WINDOW] = 0;
	}
	return 0;
}

/* forget gives answers back that have not had their turn. Their blocks are requested again. */
static void forget(ufd_port *port)
{
	for (int i = 0; i < WINDOW; i++) {
		if (has_come[i])
			ufd_release(port, &came[i], 1);
		has_come[i] = 0;
	}
}

/* copy copies a part. It returns 0, or a result that ended it. */
static int copy(ufd_port *port, const struct part *a)
{
	uint64_t written = 0, next = 0;
	ufd_message got[64];

	while (offset_of(a, written) < a->end) {
		ask(port, a, written, &next);
		int n = ufd_poll(port, got, 64);
		for (int i = 0; i < n; i++) {
			uint64_t at = (got[i].position - a->begin) / a->block % WINDOW;
			if (got[i].status != UFD_REASON_NONE) {
				fprintf(stderr, "block_reader: read %" PRIu64 ": %s\n", got[i].position, ufd_reason(got[i].status));
				return UFD_REFUSED;
			}
			came[at] = got[i];
			has_come[at] = 1;
		}
		if (write_out(port, &written) != 0) {
			perror("block_reader: write");
			return UFD_SYSTEM;
		}
		if (n > 0)
			continue;
		n = ufd_wait(port, UFD_FOREVER); /* attaches again if the daemon is gone */
		if (n < 0 && n != UFD_AGAIN)
			return n;
		if (next > written && ufd_next(port) == 1) { /* requests without an answer are forgotten */
			forget(port);
			next = written;
		}
	}
	return fflush(stdout) == 0 ? 0 : UFD_SYSTEM;
}

int main(int argc, char **argv)
{
	ufd_error why;

	if (argc < 3 || argc > 6) {
		fprintf(stderr, "usage: block_reader PROGRAM FLOW [SOCKET [OFFSET [LENGTH]]]\n");
		return 2;
	}
	ufd_client *client = ufd_attach(argc > 3 ? argv[3] : NULL, argv[1], 0, &why);
	ufd_port *port = client ? ufd_open(client, argv[2], UFD_REQUEST, 0, &why) : NULL;
	if (!port) {
		fprintf(stderr, "block_reader: %s\n", why.text);
		ufd_detach(client);
		return 1;
	}
	uint64_t size = ufd_size(port), odd = size % ufd_align(port);
	struct part all = {.end = size - odd, .block = ufd_longest(port)};
	all.begin = argc > 4 ? strtoull(argv[4], NULL, 0) : 0;
	if (all.begin > all.end)
		all.begin = all.end;
	if (argc > 5 && strtoull(argv[5], NULL, 0) < all.end - all.begin)
		all.end = all.begin + strtoull(argv[5], NULL, 0);
	int r = copy(port, &all);
	if (r < 0 && r != UFD_REFUSED) {
		ufd_why(port, &why);
		fprintf(stderr, "block_reader: %s: %s\n", ufd_strerror(r), why.text);
	}
	if (odd != 0 && all.end == size - odd)
		fprintf(stderr, "block_reader: the last %" PRIu64 " bytes are no whole block, and are left out\n", odd);
	ufd_close(port);
	ufd_detach(client);
	return r < 0;
}
