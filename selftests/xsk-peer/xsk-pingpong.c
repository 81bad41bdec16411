/* SPDX-License-Identifier: Apache-2.0 */
/*
 * xsk-pingpong: bounce a message between two AF_XDP sockets, and acknowledge each, as an
 * RC queue pair of RoCE would, with nothing else of it. It is what the latency of
 * unified-rdma-test with the device roce:INTERFACE is measured against.
 *
 *	xsk-pingpong INTERFACE PEER_MAC server|client SIZE COUNT
 *
 * Packets have the layers and lengths of a SEND of SIZE bytes and of its acknowledgement.
 * An end that has a message sends its own first and the acknowledgement behind it, both with
 * one system call. Both ends spin. There is no table of queue pairs, no checksum, no timer
 * and no copy: what is lost ends the run.
 *
 * The client prints half of the time between two messages in the columns of perftest.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <inttypes.h>
#include <math.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <netinet/ether.h>
#include <netinet/ip.h>
#include <netinet/udp.h>
#include <stdbool.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>
#include <bpf/bpf.h>
#include <linux/if_link.h>
#include <linux/if_xdp.h>
#include <xdp/xsk.h>
#include "peer.h"

#ifndef XDP_USE_SG /* Linux 6.6 */
#define XDP_USE_SG (1 << 4)
#define XDP_PKT_CONTD (1 << 0)
#endif

enum {
	RING = 64,
	FRAME = 4096,
	FRAME_HEADROOM = 256, /* XDP_PACKET_HEADROOM: the kernel's, in front of what it receives */
	SLOTS = 16,	      /* of messages and acknowledgements being sent */
	SLOT_FRAMES = 3,      /* two of a message, one of an acknowledgement */
	FRAMES = RING + SLOTS * SLOT_FRAMES,
	ICRC = 4,
	LARGEST = 4096,
	PATIENCE = 10, /* seconds */
	PORT = 4791,
};

/* The opcodes of RC that the packets have. */
enum { SEND_ONLY = 0x04, ACKNOWLEDGE = 0x11 };

struct packet {
	struct ether_header eth;
	struct iphdr ip;
	struct udphdr udp;
	uint8_t opcode, flags;
	uint16_t key;
	uint32_t queue_pair;
	uint32_t number; /* of the message */
	char payload[];	 /* of an acknowledgement: its syndrome */
} __attribute__((packed));

struct end {
	struct xsk_ring_prod fill, tx;
	struct xsk_ring_cons completion, rx;
	struct xsk_umem *umem;
	struct xsk_socket *socket;
	char *memory;
	size_t size;
	int map, program, link;
	uint32_t held, in_flight, slot; /* descriptors looked at and sent; the slot to send next */
	uint32_t message, lengths[2];	/* bytes of each kind of packet */
	uint32_t came, acknowledged;	/* numbers of what came last */
	bool client, fresh;		/* fresh: came was not looked at */
};

/* load makes a program that gives every packet of any number of frames to the socket. */
static void load(struct end *e, const char *name)
{
	const struct bpf_insn code[] = {
		/* r2 = ctx->rx_queue_index */
		{ .code = BPF_LDX | BPF_MEM | BPF_W, .dst_reg = 2, .src_reg = 1, .off = 16 },
		/* r1 = map */
		{ .code = BPF_LD | BPF_DW | BPF_IMM, .dst_reg = 1, .src_reg = BPF_PSEUDO_MAP_FD, .imm = e->map },
		{ 0 },
		/* r3 = XDP_PASS, for queues without a socket */
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 3, .imm = XDP_PASS },
		{ .code = BPF_JMP | BPF_CALL, .imm = BPF_FUNC_redirect_map },
		{ .code = BPF_JMP | BPF_EXIT },
	};
	LIBBPF_OPTS(bpf_prog_load_opts, options, .prog_flags = BPF_F_XDP_HAS_FRAGS);
	LIBBPF_OPTS(bpf_link_create_opts, native, .flags = XDP_FLAGS_DRV_MODE);

	e->program = bpf_prog_load(BPF_PROG_TYPE_XDP, "pingpong", "GPL", code, sizeof(code) / sizeof(*code), &options);
	if (e->program < 0)
		die("load the XDP program", errno);
	e->link = bpf_link_create(e->program, if_nametoindex(name), BPF_XDP, &native);
	if (e->link < 0)
		die("attach the XDP program", errno);
}

static int try_socket(struct end *e, const char *name)
{
	const struct xsk_umem_config umem = { .fill_size = RING, .comp_size = RING, .frame_size = FRAME };
	const bool long_packets = e->lengths[0] > FRAME - FRAME_HEADROOM;
	const struct xsk_socket_config socket = {
		.rx_size = RING,
		.tx_size = RING,
		.libxdp_flags = XSK_LIBXDP_FLAGS__INHIBIT_PROG_LOAD,
		.bind_flags = XDP_COPY | XDP_USE_NEED_WAKEUP | (long_packets ? XDP_USE_SG : 0),
	};
	int err;

	err = xsk_umem__create(&e->umem, e->memory, FRAMES * FRAME, &e->fill, &e->completion, &umem);
	if (err)
		die("register the memory", -err);
	err = xsk_socket__create(&e->socket, name, 0, e->umem, &e->rx, &e->tx, &socket);
	if (err)
		xsk_umem__delete(e->umem);
	return err;
}

/* open_socket waits for a queue that the kernel has not freed yet. */
static void open_socket(struct end *e, const char *name)
{
	const struct timespec pause = { .tv_nsec = 20 * 1000 * 1000 };
	int err = -EBUSY;

	for (int tries = 0; err == -EBUSY && tries < 250; tries++) {
		if (tries > 0)
			nanosleep(&pause, NULL);
		err = try_socket(e, name);
	}
	if (err)
		die("open the socket", -err);
	e->map = bpf_map_create(BPF_MAP_TYPE_XSKMAP, "sockets", sizeof(int), sizeof(int), 1, NULL);
	if (e->map < 0)
		die("make the map of sockets", errno);
	err = xsk_socket__update_xskmap(e->socket, e->map);
	if (err)
		die("put the socket into its map", -err);
}

/* supply gives the kernel the first frames. */
static void supply(struct end *e)
{
	uint32_t at;

	if (xsk_ring_prod__reserve(&e->fill, RING, &at) != RING)
		die("fill the fill ring", ENOSPC);
	for (uint32_t i = 0; i < RING; i++)
		*xsk_ring_prod__fill_addr(&e->fill, at + i) = (uint64_t)i * FRAME;
	xsk_ring_prod__submit(&e->fill, RING);
}

static uint64_t frame_of(uint32_t slot, uint32_t frame) { return (uint64_t)(RING + slot * SLOT_FRAMES + frame) * FRAME; }

static struct packet *packet_at(struct end *e, uint64_t address) { return (struct packet *)(e->memory + address); }

static uint16_t ip_checksum(const struct iphdr *ip)
{
	uint16_t words[sizeof(*ip) / 2];
	uint32_t sum = 0;

	memcpy(words, ip, sizeof(words));
	for (unsigned i = 0; i < sizeof(words) / sizeof(*words); i++)
		sum += words[i];
	sum = (sum & 0xffff) + (sum >> 16);
	return ~(sum + (sum >> 16));
}

/* address is of the block for documentation: the kernel gets none of these packets. */
static uint32_t address(bool client) { return htonl(0xc0000201 + client); }

static void write_headers(struct end *e, struct packet *p, uint8_t opcode, uint32_t length, const uint8_t *from, const uint8_t *to)
{
	memcpy(p->eth.ether_shost, from, ETH_ALEN);
	memcpy(p->eth.ether_dhost, to, ETH_ALEN);
	p->eth.ether_type = htons(ETHERTYPE_IP);
	struct iphdr ip = { .version = 4, .ihl = 5, .ttl = 64, .protocol = IPPROTO_UDP, .frag_off = htons(IP_DF),
			    .saddr = address(e->client), .daddr = address(!e->client),
			    .tot_len = htons(length - sizeof(p->eth)) };
	ip.check = ip_checksum(&ip);
	p->ip = ip;
	p->udp = (struct udphdr){ .source = htons(0xc000), .dest = htons(PORT),
				  .len = htons(length - sizeof(p->eth) - sizeof(p->ip)) };
	p->opcode = opcode;
}

static void own_mac(const char *name, uint8_t *mac)
{
	struct ifreq request = { 0 };
	const int fd = socket(AF_INET, SOCK_DGRAM, 0);

	strncpy(request.ifr_name, name, IFNAMSIZ - 1);
	if (fd < 0 || ioctl(fd, SIOCGIFHWADDR, &request))
		die("ask for the interface's address", errno);
	close(fd);
	memcpy(mac, request.ifr_hwaddr.sa_data, ETH_ALEN);
}

static void prepare(struct end *e, const char *name, const struct ether_addr *peer)
{
	uint8_t mac[ETH_ALEN];

	own_mac(name, mac);
	for (uint32_t slot = 0; slot < SLOTS; slot++) {
		write_headers(e, packet_at(e, frame_of(slot, 0)), SEND_ONLY, e->lengths[0], mac, peer->ether_addr_octet);
		write_headers(e, packet_at(e, frame_of(slot, 2)), ACKNOWLEDGE, e->lengths[1], mac, peer->ether_addr_octet);
	}
}

/* pieces is how many descriptors a packet takes. */
static uint32_t pieces(uint32_t length) { return length > FRAME ? 2 : 1; }

/* put fills in the descriptors of a packet and returns the place of the next. */
static uint32_t put(struct end *e, uint32_t at, uint64_t frame, uint32_t length, uint32_t number)
{
	packet_at(e, frame)->number = number;
	if (length > FRAME) {
		*xsk_ring_prod__tx_desc(&e->tx, at++) = (struct xdp_desc){ .addr = frame, .len = FRAME, .options = XDP_PKT_CONTD };
		frame += FRAME;
		length -= FRAME;
	}
	*xsk_ring_prod__tx_desc(&e->tx, at++) = (struct xdp_desc){ .addr = frame, .len = length };
	return at;
}

/* reap takes completions, until a slot is free. */
static void reap(struct end *e)
{
	do {
		uint32_t at, n = xsk_ring_cons__peek(&e->completion, RING, &at);

		xsk_ring_cons__release(&e->completion, n);
		e->in_flight -= n;
	} while (e->in_flight > (SLOTS - 1) * SLOT_FRAMES);
}

/* send_packets sends a message and behind it an acknowledgement, those whose number is not 0, with one call. */
static void send_packets(struct end *e, uint32_t message, uint32_t acknowledgement)
{
	const uint32_t n = (message ? pieces(e->lengths[0]) : 0) + (acknowledgement ? 1 : 0);
	uint32_t at;

	if (xsk_ring_prod__reserve(&e->tx, n, &at) != n)
		die("find room in the tx ring", ENOSPC);
	if (message)
		at = put(e, at, frame_of(e->slot, 0), e->lengths[0], message);
	if (acknowledgement)
		put(e, at, frame_of(e->slot, 2), e->lengths[1], acknowledgement);
	xsk_ring_prod__submit(&e->tx, n);
	e->in_flight += n;
	e->slot = (e->slot + 1) % SLOTS;
	while (sendto(xsk_socket__fd(e->socket), NULL, 0, MSG_DONTWAIT, NULL, 0) < 0)
		if (errno != EAGAIN && errno != EBUSY && errno != ENOBUFS)
			die("send", errno);
	reap(e);
}

/* recycle gives back the frames of what was looked at. */
static void recycle(struct end *e)
{
	uint32_t to;

	if (xsk_ring_prod__reserve(&e->fill, e->held, &to) != e->held)
		return; /* the kernel says a little later that it took frames: next time */
	for (uint32_t i = 0; i < e->held; i++)
		*xsk_ring_prod__fill_addr(&e->fill, to + i) = xsk_ring_cons__rx_desc(&e->rx, e->rx.cached_cons - e->held + i)->addr / FRAME * FRAME;
	xsk_ring_prod__submit(&e->fill, e->held);
	xsk_ring_cons__release(&e->rx, e->held);
	e->held = 0;
}

static void look(struct end *e, const struct packet *p)
{
	if (p->opcode == ACKNOWLEDGE) {
		e->acknowledged = p->number;
	} else if (p->opcode == SEND_ONLY) {
		e->came = p->number;
		e->fresh = true;
	}
}

/* receive takes packets up to a message. Their frames go back when it has time for that: at the next call. */
static void receive(struct end *e)
{
	bool begins = true;
	uint32_t at;

	if (e->held)
		recycle(e);
	while (!(e->fresh && begins) && xsk_ring_cons__peek(&e->rx, 1, &at) == 1) {
		const struct xdp_desc *d = xsk_ring_cons__rx_desc(&e->rx, at);

		if (begins && d->len >= sizeof(struct packet))
			look(e, packet_at(e, d->addr));
		begins = !(d->options & XDP_PKT_CONTD);
		e->held++;
	}
}

static uint64_t nanoseconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* ticks is a clock that costs nearly nothing to read. */
static uint64_t ticks(void)
{
#ifdef __x86_64__
	return __builtin_ia32_rdtsc();
#else
	return nanoseconds();
#endif
}

/* await spins until a message has come, or that many nanoseconds have passed. */
static bool await(struct end *e, uint64_t limit)
{
	uint64_t end = 0;

	for (uint32_t tries = 1; !e->fresh; tries++) {
		receive(e);
		if (tries % (1 << 14) != 0)
			continue;
		if (end == 0)
			end = nanoseconds() + limit;
		else if (nanoseconds() > end)
			return false;
	}
	e->fresh = false;
	return true;
}

static void await_number(struct end *e, uint32_t number)
{
	do {
		if (!await(e, PATIENCE * 1000000000ull))
			die("wait for a message", ETIMEDOUT);
	} while (e->came < number);
	if (e->came != number)
		die("take messages in order", EPROTO);
}

/* meet sends the first message until it is answered, and returns when everything is there to be measured. */
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

	while (e->acknowledged != number) {
		receive(e);
		e->fresh = false;
		if (nanoseconds() > end)
			die("wait for the last acknowledgement", ETIMEDOUT);
	}
}

/* The first message is 1, and may come more than once; it and its answer are not measured. */
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
		if (e->came != next && e->came != 1)
			die("take messages in order", EPROTO);
		send_packets(e, e->came, e->came);
		next = e->came + 1;
	}
	await_acknowledgement(e, count + 1);
}

static int ascending(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* report prints what perftest would of the same times, each of two messages. */
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
	memset(posted, 1, count * sizeof(*posted)); /* so that no page is missing later */
	const uint64_t since = nanoseconds(), from = ticks();
	ask(e, count, posted);
	const double per_microsecond = (double)(ticks() - from) * 1000 / (double)(nanoseconds() - since);

	report(e->message, count, posted, per_microsecond);
	free(posted);
}

static void close_all(struct end *e)
{
	close(e->link);
	close(e->program);
	close(e->map);
	xsk_socket__delete(e->socket);
	xsk_umem__delete(e->umem);
	munmap(e->memory, e->size);
}

int main(int argc, char **argv)
{
	struct ether_addr *peer = argc == 6 ? ether_aton(argv[2]) : NULL;

	if (!peer || (strcmp(argv[3], "server") != 0 && strcmp(argv[3], "client") != 0)) {
		fprintf(stderr, "Usage: xsk-pingpong INTERFACE PEER_MAC server|client SIZE COUNT\n");
		return 2;
	}
	struct end e = { .client = argv[3][0] == 'c', .message = number(argv[4], "size") };
	const uint32_t count = number(argv[5], "count");

	if (e.message > LARGEST || count < 4 || count > 100 * 1000 * 1000) {
		fprintf(stderr, "xsk-pingpong: sizes are up to %d, counts from 4 to 100000000\n", LARGEST);
		return 2;
	}
	e.lengths[0] = sizeof(struct packet) + e.message + ICRC;
	e.lengths[1] = sizeof(struct packet) + 4 + ICRC;
	e.size = FRAMES * FRAME;
	e.memory = map_huge(&e.size);
	open_socket(&e, argv[1]);
	supply(&e);
	prepare(&e, argv[1], peer);
	load(&e, argv[1]);
	if (e.client)
		measure(&e, count);
	else
		answer(&e, count);
	close_all(&e);
	return 0;
}
