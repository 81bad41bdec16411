/* SPDX-License-Identifier: Apache-2.0 */
/*
 * xsk-records: the packets of a log's clients and of its answers, without the rest of a log. It
 * measures the part that AF_XDP itself has in the cost of the log of unifiedd over roce:INTERFACE.
 *
 *	xsk-records INTERFACE PEER_MAC server SIZE
 *	xsk-records INTERFACE PEER_MAC client SIZE WINDOW WARM_MS SPAN_MS
 *
 * The client keeps WINDOW records in flight: for each answered record it sends the next one.
 * Packets have the layers and lengths of RoCE packets for messages of SIZE bytes and for answers
 * of 64 bytes. A message longer than the largest path MTU takes several packets. Neither end
 * writes or reads the payload or acknowledges packets, and neither keeps data: a lost packet ends
 * the run. The server answers records that arrive together with one system call. Both ends spin.
 *
 * The client prints "measuring" and "measured" on standard error when it begins to count and when
 * it ends, and prints the result as JSON. The server runs until SIGTERM.
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <signal.h>
#include "end.h"

enum {
	RING = 512,
	MOST = 64,	 /* records in flight */
	PACKETS = 2,	 /* of a record */
	SLOT_FRAMES = 3, /* two of a packet of PATH_MTU bytes, one of the last */
	BATCH = 64,	 /* descriptors processed together */
	ANSWER = 64,
};

/* The packets that one end sends for a record: at most one of PATH_MTU bytes, and a last one. */
static struct {
	uint32_t count, lengths[PACKETS];
	uint8_t opcodes[PACKETS];
	uint64_t frames[PACKETS]; /* of a slot */
	uint32_t descriptors;	  /* for all of them */
} sent;

/* The client's measurements. */
static struct {
	uint64_t since[MOST]; /* of each record in flight */
	uint32_t *times;      /* nanoseconds each */
	uint64_t count, room;
	bool counting;
} took;

static uint32_t numbers[BATCH]; /* of received records or answers */
static volatile sig_atomic_t stop;

static void on_signal(int signal)
{
	(void)signal;
	stop = 1;
}

static void add(uint8_t opcode, uint32_t bytes, uint64_t frame)
{
	sent.opcodes[sent.count] = opcode;
	sent.lengths[sent.count] = length_of(bytes);
	sent.frames[sent.count] = frame;
	sent.descriptors += pieces(sent.lengths[sent.count++]);
}

/* cut chooses the packets for a message of that many bytes. */
static void cut(uint32_t bytes)
{
	if (bytes > PATH_MTU)
		add(SEND_FIRST, PATH_MTU, 0);
	add(bytes > PATH_MTU ? SEND_LAST : SEND_ONLY, bytes > PATH_MTU ? bytes - PATH_MTU : bytes, 2);
}

static uint64_t frame_of(uint32_t number, uint32_t packet)
{
	return (RING + (uint64_t)(number % MOST) * SLOT_FRAMES + sent.frames[packet]) * FRAME;
}

static void prepare(struct end *e, const char *name, const struct ether_addr *peer)
{
	uint8_t mac[ETH_ALEN];

	own_mac(name, mac);
	for (uint32_t slot = 0; slot < MOST; slot++)
		for (uint32_t i = 0; i < sent.count; i++)
			write_headers(e, packet_at(e, frame_of(slot, i)), sent.opcodes[i], sent.lengths[i], mac, peer->ether_addr_octet);
}

/* send_all sends the packets for the first n of the numbers. */
static void send_all(struct end *e, uint32_t n)
{
	uint32_t at = 0;

	if (n == 0)
		return;
	if (xsk_ring_prod__reserve(&e->tx, n * sent.descriptors, &at) != n * sent.descriptors)
		die("find room in the tx ring", ENOSPC);
	for (uint32_t i = 0; i < n; i++)
		for (uint32_t k = 0; k < sent.count; k++)
			at = put(e, at, frame_of(numbers[i], k), sent.lengths[k], numbers[i]);
	transmit(e, n * sent.descriptors);
	reap(e, RING - MOST * sent.descriptors);
}

/*
 * take stores the numbers of complete messages, and returns how many there are. The next call
 * returns their frames.
 */
static uint32_t take(struct end *e)
{
	static bool begins = true;
	uint32_t at, n = 0;

	if (e->held)
		recycle(e);
	if (e->held)
		return 0;
	e->held = xsk_ring_cons__peek(&e->rx, BATCH, &at);
	for (uint32_t i = 0; i < e->held; i++) {
		const struct xdp_desc *d = xsk_ring_cons__rx_desc(&e->rx, at + i);

		if (begins && d->len >= sizeof(struct packet) && packet_at(e, d->addr)->opcode != SEND_FIRST)
			numbers[n++] = packet_at(e, d->addr)->number;
		begins = !(d->options & XDP_PKT_CONTD);
	}
	return n;
}

static void serve(struct end *e)
{
	uint32_t next = 0;

	while (!stop) {
		const uint32_t n = take(e);

		for (uint32_t i = 0; i < n; i++)
			if (numbers[i] != next++)
				die("take records in order", EPROTO);
		send_all(e, n);
	}
}

static void count(uint64_t nanoseconds)
{
	if (took.count == took.room) {
		took.room = took.room ? 2 * took.room : 1 << 20;
		took.times = realloc(took.times, took.room * sizeof(*took.times));
		if (!took.times)
			die("make room for what is counted", ENOMEM);
	}
	took.times[took.count++] = nanoseconds > UINT32_MAX ? UINT32_MAX : (uint32_t)nanoseconds;
}

/* begin sends the first records. */
static void begin(struct end *e, uint32_t window)
{
	const uint64_t now = nanoseconds();

	for (uint32_t i = 0; i < window; i++) {
		took.since[i] = now;
		numbers[i] = i;
	}
	send_all(e, window);
}

/* turn takes answers until a time, at least one, and sends a record for each. */
static void turn(struct end *e, uint32_t window, uint64_t until)
{
	uint64_t now = nanoseconds(), last = now;

	for (; now < until || (took.counting && took.count == 0); now = nanoseconds()) {
		const uint32_t n = take(e);

		if (n > 0)
			last = now;
		else if (now - last > PATIENCE * 1000000000ull)
			die("wait for an answer", ETIMEDOUT);
		for (uint32_t i = 0; i < n; i++) {
			uint64_t *since = &took.since[numbers[i] % window];

			if (took.counting)
				count(now - *since);
			*since = now;
			numbers[i] += window;
		}
		send_all(e, n);
	}
}

static int ascending(const void *a, const void *b)
{
	const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

static uint32_t quantile(double share) { return took.times[(uint64_t)((double)(took.count - 1) * share)]; }

static void measure(struct end *e, uint32_t window, uint64_t warm, uint64_t span)
{
	begin(e, window);
	turn(e, window, nanoseconds() + warm);
	fprintf(stderr, "measuring\n");
	const uint64_t since = nanoseconds();
	took.counting = true;
	turn(e, window, since + span);
	const double seconds = (double)(nanoseconds() - since) / 1e9;
	fprintf(stderr, "measured\n");
	qsort(took.times, took.count, sizeof(*took.times), ascending);
	printf("{\"messages\": %" PRIu64 ", \"seconds\": %.6f, \"latency_ns\": {\"p50_ns\": %" PRIu32 ", \"p99_ns\": %" PRIu32 "}}\n", took.count,
	       seconds, quantile(0.5), quantile(0.99));
	free(took.times);
}

static int usage(void)
{
	fprintf(stderr, "Usage: xsk-records INTERFACE PEER_MAC server SIZE\n       xsk-records INTERFACE PEER_MAC client SIZE WINDOW WARM_MS SPAN_MS\n"
			"Sizes are 1 to %d, windows 1 to %d.\n", PACKETS * PATH_MTU, MOST);
	return 2;
}

int main(int argc, char **argv)
{
	const bool client = argc == 8 && strcmp(argv[3], "client") == 0;
	struct ether_addr *peer = argc > 2 ? ether_aton(argv[2]) : NULL;
	struct end e = { .client = client, .ring = RING, .frames = RING + MOST * SLOT_FRAMES };
	const struct sigaction action = { .sa_handler = on_signal };

	if (!peer || (!client && (argc != 5 || strcmp(argv[3], "server") != 0)))
		return usage();
	const uint32_t size = number(argv[4], "size"), window = client ? number(argv[5], "window") : 1;
	if (size < 1 || size > PACKETS * PATH_MTU || window < 1 || window > MOST)
		return usage();
	cut(client ? size : ANSWER);
	e.long_packets = length_of(size) > FRAME - FRAME_HEADROOM;
	sigaction(SIGTERM, &action, NULL);
	open_end(&e, argv[1]);
	prepare(&e, argv[1], peer);
	load(&e, argv[1]);
	if (client)
		measure(&e, window, number(argv[6], "warm-up") * 1000000ull, number(argv[7], "span") * 1000000ull);
	else
		serve(&e);
	close_end(&e);
	return 0;
}
