/* SPDX-License-Identifier: Apache-2.0 */
/*
 * xsk-pingpong: bounce a message between two AF_XDP sockets, and acknowledge each, as an RC queue
 * pair of RoCE would, without the rest of RoCE. The latency of unified-rdma-test with the device
 * roce:INTERFACE is compared with it.
 *
 *	xsk-pingpong INTERFACE PEER_MAC server|client SIZE COUNT
 *
 * Packets have the layers and lengths of a SEND of SIZE bytes and of its acknowledgement. An end
 * that receives a message sends its own first and then the acknowledgement, both with one system
 * call. Both ends spin. There is no table of queue pairs, no checksum, no timer and no copy: a
 * lost packet ends the run.
 *
 * The client prints half of the time between two messages in the columns of perftest.
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <math.h>
#include "end.h"

enum {
	RING = 64,
	SLOTS = 16,	 /* of messages and acknowledgements being sent */
	SLOT_FRAMES = 3, /* two of a message, one of an acknowledgement */
};

static struct {
	uint32_t slot;		     /* to send from next */
	uint32_t message, lengths[2]; /* bytes of each kind of packet */
	uint32_t came, acknowledged; /* the last numbers that arrived */
	bool fresh;		     /* came is not processed yet */
} state;

static uint64_t frame_of(uint32_t slot, uint32_t frame) { return (uint64_t)(RING + slot * SLOT_FRAMES + frame) * FRAME; }

static void prepare(struct end *e, const char *name, const struct ether_addr *peer)
{
	uint8_t mac[ETH_ALEN];

	own_mac(name, mac);
	for (uint32_t slot = 0; slot < SLOTS; slot++) {
		write_headers(e, packet_at(e, frame_of(slot, 0)), SEND_ONLY, state.lengths[0], mac, peer->ether_addr_octet);
		write_headers(e, packet_at(e, frame_of(slot, 2)), ACKNOWLEDGE, state.lengths[1], mac, peer->ether_addr_octet);
	}
}

/*
 * send_packets sends a message and then an acknowledgement with one call. It leaves out those whose
 * number is 0.
 */
static void send_packets(struct end *e, uint32_t message, uint32_t acknowledgement)
{
	const uint32_t n = (message ? pieces(state.lengths[0]) : 0) + (acknowledgement ? 1 : 0);
	uint32_t at;

	if (xsk_ring_prod__reserve(&e->tx, n, &at) != n)
		die("find room in the tx ring", ENOSPC);
	if (message)
		at = put(e, at, frame_of(state.slot, 0), state.lengths[0], message);
	if (acknowledgement)
		put(e, at, frame_of(state.slot, 2), state.lengths[1], acknowledgement);
	state.slot = (state.slot + 1) % SLOTS;
	transmit(e, n);
	reap(e, (SLOTS - 1) * SLOT_FRAMES);
}

static void look(const struct packet *p)
{
	if (p->opcode == ACKNOWLEDGE) {
		state.acknowledged = p->number;
	} else if (p->opcode == SEND_ONLY) {
		state.came = p->number;
		state.fresh = true;
	}
}

/*
 * receive takes packets until a message arrives. The next call returns their frames, when there is
 * time for that.
 */
static void receive(struct end *e)
{
	bool begins = true;
	uint32_t at;

	if (e->held)
		recycle(e);
	while (!(state.fresh && begins) && xsk_ring_cons__peek(&e->rx, 1, &at) == 1) {
		const struct xdp_desc *d = xsk_ring_cons__rx_desc(&e->rx, at);

		if (begins && d->len >= sizeof(struct packet))
			look(packet_at(e, d->addr));
		begins = !(d->options & XDP_PKT_CONTD);
		e->held++;
	}
}

/* ticks reads a clock that costs very little. */
static uint64_t ticks(void)
{
#ifdef __x86_64__
	return __builtin_ia32_rdtsc();
#else
	return nanoseconds();
#endif
}

/* await spins until a message arrives, or that many nanoseconds have passed. */
static bool await(struct end *e, uint64_t limit)
{
	uint64_t end = 0;

	for (uint32_t tries = 1; !state.fresh; tries++) {
		receive(e);
		if (tries % (1 << 14) != 0)
			continue;
		if (end == 0)
			end = nanoseconds() + limit;
		else if (nanoseconds() > end)
			return false;
	}
	state.fresh = false;
	return true;
}

static void await_number(struct end *e, uint32_t number)
{
	do {
		if (!await(e, PATIENCE * 1000000000ull))
			die("wait for a message", ETIMEDOUT);
	} while (state.came < number);
	if (state.came != number)
		die("take messages in order", EPROTO);
}

/* meet sends the first message until it is answered. Then both ends are ready for the measurement. */
static void meet(struct end *e)
{
	for (int tries = 0; tries < PATIENCE * 200; tries++) {
		send_packets(e, 1, 0);
		if (await(e, 5 * 1000 * 1000))
			return;
	}
	die("find the server", ETIMEDOUT);
}

static void await_acknowledgement(struct end *e, uint32_t number)
{
	const uint64_t end = nanoseconds() + PATIENCE * 1000000000ull;

	while (state.acknowledged != number) {
		receive(e);
		state.fresh = false;
		if (nanoseconds() > end)
			die("wait for the last acknowledgement", ETIMEDOUT);
	}
}

/* The first message is 1, and may arrive more than once. It and its answer are not measured. */
static void ask(struct end *e, uint32_t count, uint64_t *posted)
{
	uint32_t last = 1;

	meet(e);
	for (uint32_t i = 0; i < count; i++) {
		posted[i] = ticks();
		send_packets(e, last + 1, last);
		await_number(e, ++last);
	}
	await_acknowledgement(e, last);
	send_packets(e, 0, last);
}

static void answer(struct end *e, uint32_t count)
{
	uint32_t next = 1;

	while (next <= count + 1) {
		if (!await(e, PATIENCE * 1000000000ull))
			die("wait for a message", ETIMEDOUT);
		if (state.came != next && state.came != 1)
			die("take messages in order", EPROTO);
		send_packets(e, state.came, state.came);
		next = state.came + 1;
	}
	await_acknowledgement(e, count + 1);
}

static int ascending(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* report prints the line of perftest for these times, each of two messages. */
static void report(uint32_t size, uint32_t count, uint64_t *posted, double per_microsecond)
{
	const uint32_t tail = 2, n = count - 1 - tail;
	const double unit = 2 * per_microsecond;
	double sum = 0, squares = 0;

	for (uint32_t i = 0; i + 1 < count; i++)
		posted[i] = posted[i + 1] - posted[i];
	qsort(posted, count - 1, sizeof(*posted), ascending);
	for (uint32_t i = 0; i < n; i++)
		sum += posted[i] / unit;
	for (uint32_t i = 0; i < n; i++)
		squares += (posted[i] / unit - sum / n) * (posted[i] / unit - sum / n);
	printf(" #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99%% percentile[usec]   99.9%% percentile[usec] \n");
	printf(" %-7" PRIu32 " %-10" PRIu32 "     %-7.2f        %-7.2f      %-7.2f  	       %-7.2f     	%-7.2f		%-7.2f 		%-7.2f\n",
	       size, count, posted[0] / unit, posted[n] / unit, (posted[n / 2] + posted[(n - 1) / 2]) / 2 / unit,
	       sum / n, sqrt(squares / n), posted[(uint32_t)ceil(n * 0.99)] / unit, posted[(uint32_t)ceil(n * 0.999)] / unit);
}

static void measure(struct end *e, uint32_t count)
{
	uint64_t *posted = calloc(count, sizeof(*posted));

	if (!posted)
		die("make room for the times", ENOMEM);
	memset(posted, 1, count * sizeof(*posted)); /* touch every page now */
	const uint64_t since = nanoseconds(), from = ticks();
	ask(e, count, posted);
	const double per_microsecond = (double)(ticks() - from) * 1000 / (double)(nanoseconds() - since);

	report(state.message, count, posted, per_microsecond);
	free(posted);
}

int main(int argc, char **argv)
{
	struct ether_addr *peer = argc == 6 ? ether_aton(argv[2]) : NULL;

	if (!peer || (strcmp(argv[3], "server") != 0 && strcmp(argv[3], "client") != 0)) {
		fprintf(stderr, "Usage: xsk-pingpong INTERFACE PEER_MAC server|client SIZE COUNT\n");
		return 2;
	}
	struct end e = { .client = argv[3][0] == 'c', .ring = RING, .frames = RING + SLOTS * SLOT_FRAMES, .native = true };
	const uint32_t count = number(argv[5], "count");

	state.message = number(argv[4], "size");
	if (state.message > PATH_MTU || count < 4 || count > 100 * 1000 * 1000) {
		fprintf(stderr, "xsk-pingpong: sizes are up to %d, counts from 4 to 100000000\n", PATH_MTU);
		return 2;
	}
	state.lengths[0] = length_of(state.message);
	state.lengths[1] = length_of(4);
	e.long_packets = state.lengths[0] > FRAME - FRAME_HEADROOM;
	open_end(&e, argv[1]);
	prepare(&e, argv[1], peer);
	load(&e, argv[1]);
	if (e.client)
		measure(&e, count);
	else
		answer(&e, count);
	close_end(&e);
	return 0;
}
