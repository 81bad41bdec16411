/* SPDX-License-Identifier: Apache-2.0 */
/*
 * xsk-peer: receive packets on one queue with libxdp's xsk.h and return their frames, and nothing
 * else. unified-xdp-test -rx -wait poll is compared with it: the same rings, frames, batches, way
 * of waiting and kind of memory, in C, with libxdp's own sockets and XDP program.
 *
 *	xsk-peer INTERFACE [QUEUE [RING [FRAME [COUNT]]]]
 *
 * It runs until SIGINT, SIGTERM or COUNT packets, and prints what it received
 * as one line of JSON.
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <net/if.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <time.h>
#include <sys/resource.h>
#include <linux/if_link.h>
#include <linux/if_xdp.h>
#include <xdp/xsk.h>
#include "peer.h"

enum {
	BATCH = 64,
	POLL_MS = 100,
};

struct receiver {
	struct xsk_ring_prod fill;
	struct xsk_ring_cons completion; /* unused, but a UMEM has one */
	struct xsk_ring_cons rx;
	struct xsk_umem *umem;
	struct xsk_socket *socket;
	void *memory;
	size_t size;
	uint64_t packets, bytes, polls, kicks;
};

static volatile sig_atomic_t stop;

static void on_signal(int signal)
{
	(void)signal;
	stop = 1;
}

static int try_socket(struct receiver *r, const char *name, uint32_t queue, uint32_t ring, uint32_t frame)
{
	const struct xsk_umem_config umem = {
		.fill_size = ring,
		.comp_size = ring,
		.frame_size = frame,
	};
	const struct xsk_socket_config socket = {
		.rx_size = ring,
		.xdp_flags = XDP_FLAGS_DRV_MODE,
		.bind_flags = XDP_COPY | XDP_USE_NEED_WAKEUP,
	};
	int err;

	err = xsk_umem__create(&r->umem, r->memory, (uint64_t)ring * frame, &r->fill, &r->completion, &umem);
	if (err)
		die("register the memory", -err);
	err = xsk_socket__create(&r->socket, name, queue, r->umem, &r->rx, NULL, &socket);
	if (err)
		xsk_umem__delete(r->umem);
	return err;
}

/* open_socket retries while the kernel has not freed the queue yet. */
static void open_socket(struct receiver *r, const char *name, uint32_t queue, uint32_t ring, uint32_t frame)
{
	const struct timespec pause = { .tv_nsec = 20 * 1000 * 1000 };
	int err = -EBUSY;

	for (int tries = 0; err == -EBUSY && tries < 250; tries++) {
		if (tries > 0)
			nanosleep(&pause, NULL);
		err = try_socket(r, name, queue, ring, frame);
	}
	if (err)
		die("open the socket", -err);
}

/* supply gives the kernel every frame. */
static void supply(struct receiver *r, uint32_t ring, uint32_t frame)
{
	uint32_t at;

	if (xsk_ring_prod__reserve(&r->fill, ring, &at) != ring)
		die("fill the fill ring", ENOSPC);
	for (uint32_t i = 0; i < ring; i++)
		*xsk_ring_prod__fill_addr(&r->fill, at + i) = (uint64_t)i * frame;
	xsk_ring_prod__submit(&r->fill, ring);
}

/*
 * receive takes a batch and returns its frames. The kernel reports frames as taken from the fill
 * ring a little later than it puts packets into the other ring, so receive takes no more packets
 * than the fill ring has room for.
 */
static uint32_t receive(struct receiver *r)
{
	uint32_t from, to;
	uint32_t room = xsk_prod_nb_free(&r->fill, BATCH);
	uint32_t n = xsk_ring_cons__peek(&r->rx, room < BATCH ? room : BATCH, &from);

	if (n == 0)
		return 0;
	if (xsk_ring_prod__reserve(&r->fill, n, &to) != n)
		die("give frames back", ENOSPC);
	for (uint32_t i = 0; i < n; i++) {
		const struct xdp_desc *d = xsk_ring_cons__rx_desc(&r->rx, from + i);

		r->bytes += d->len;
		*xsk_ring_prod__fill_addr(&r->fill, to + i) = xsk_umem__extract_addr(d->addr);
	}
	xsk_ring_prod__submit(&r->fill, n);
	xsk_ring_cons__release(&r->rx, n);
	r->packets += n;
	if (xsk_ring_prod__needs_wakeup(&r->fill)) {
		recvfrom(xsk_socket__fd(r->socket), NULL, 0, MSG_DONTWAIT, NULL, NULL);
		r->kicks++;
	}
	return n;
}

static void run(struct receiver *r, uint64_t count)
{
	struct pollfd fd = { .fd = xsk_socket__fd(r->socket), .events = POLLIN };

	while (!stop && (count == 0 || r->packets < count)) {
		if (receive(r) == 0) {
			r->polls++;
			poll(&fd, 1, POLL_MS);
		}
	}
}

static void report(struct receiver *r)
{
	struct xdp_statistics s = { 0 };
	struct rusage u;
	socklen_t length = sizeof(s);

	if (getsockopt(xsk_socket__fd(r->socket), SOL_XDP, XDP_STATISTICS, &s, &length))
		die("read statistics", errno);
	if (getrusage(RUSAGE_SELF, &u))
		die("read the time used", errno);
	printf("{\"received_packets\": %" PRIu64 ", \"received_bytes\": %" PRIu64 ", \"lost_packets\": %" PRIu64
	       ", \"waits\": %" PRIu64 ", \"kicks\": %" PRIu64 ", \"cpu_seconds\": %.6f}\n",
	       r->packets, r->bytes, (uint64_t)(s.rx_dropped + s.rx_ring_full), r->polls, r->kicks,
	       (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6);
}

static void close_all(struct receiver *r)
{
	xsk_socket__delete(r->socket);
	xsk_umem__delete(r->umem);
	munmap(r->memory, r->size);
}

int main(int argc, char **argv)
{
	if (argc < 2 || argc > 6) {
		fprintf(stderr, "Usage: xsk-peer INTERFACE [QUEUE [RING [FRAME [COUNT]]]]\n");
		return 2;
	}
	uint32_t queue = argc > 2 ? number(argv[2], "queue") : 0;
	uint32_t ring = argc > 3 ? number(argv[3], "ring") : 4096;
	uint32_t frame = argc > 4 ? number(argv[4], "frame") : 4096;
	uint64_t count = argc > 5 ? number(argv[5], "count") : 0;
	struct receiver r = { 0 };
	const struct sigaction action = { .sa_handler = on_signal };

	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	r.size = (size_t)ring * frame;
	r.memory = map_huge(&r.size);
	open_socket(&r, argv[1], queue, ring, frame);
	supply(&r, ring, frame);
	fprintf(stderr, "receiving on %s\n", argv[1]);
	run(&r, count);
	report(&r);
	close_all(&r);
	return 0;
}
