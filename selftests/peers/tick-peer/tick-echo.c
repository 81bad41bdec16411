/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tick-echo: send each tick of unified-tick-test back as an order, over an AF_XDP socket in copy mode, without TCP. It
 * is the least that a program can do to answer a packet that way. Traders are compared with it.
 *
 *	tick-echo INTERFACE PORT
 *
 * It takes UDP packets over IPv4 without options to PORT from queue 0, swaps the addresses and ports, writes 'O' in
 * front of the tick, and leaves out the checksum of UDP. It spins. SIGINT or SIGTERM ends it. Then it prints how many
 * it has sent as JSON.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stddef.h>
#include "../xsk-peer/end.h"

enum { RING = 2048, BATCH = 64 };

static volatile sig_atomic_t ending;

static void end_it(int signal)
{
	(void)signal;
	ending = 1;
}

/* load_for makes a program that gives packets to the port to the socket, and leaves the others to the host. */
static void load_for(struct end *e, const char *name, uint16_t port)
{
	/* offsets from the Ethernet header */
	enum { TYPE = 12, VERSION = 14, PROTOCOL = 23, TO = 36, LEAST = 42 };
	const struct bpf_insn code[] = {
		{ .code = BPF_ALU64 | BPF_MOV | BPF_X, .dst_reg = 6, .src_reg = 1 },		 /* 0: the context */
		{ .code = BPF_LDX | BPF_MEM | BPF_W, .dst_reg = 2, .src_reg = 6, .off = 0 },	 /* data */
		{ .code = BPF_LDX | BPF_MEM | BPF_W, .dst_reg = 3, .src_reg = 6, .off = 4 },	 /* data_end */
		{ .code = BPF_ALU64 | BPF_MOV | BPF_X, .dst_reg = 4, .src_reg = 2 },
		{ .code = BPF_ALU64 | BPF_ADD | BPF_K, .dst_reg = 4, .imm = LEAST },
		{ .code = BPF_JMP | BPF_JGT | BPF_X, .dst_reg = 4, .src_reg = 3, .off = 14 },	 /* 5: pass */
		{ .code = BPF_LDX | BPF_MEM | BPF_H, .dst_reg = 5, .src_reg = 2, .off = TYPE },
		{ .code = BPF_JMP | BPF_JNE | BPF_K, .dst_reg = 5, .imm = htons(ETHERTYPE_IP), .off = 12 },
		{ .code = BPF_LDX | BPF_MEM | BPF_B, .dst_reg = 5, .src_reg = 2, .off = VERSION },
		{ .code = BPF_JMP | BPF_JNE | BPF_K, .dst_reg = 5, .imm = 0x45, .off = 10 },
		{ .code = BPF_LDX | BPF_MEM | BPF_B, .dst_reg = 5, .src_reg = 2, .off = PROTOCOL }, /* 10 */
		{ .code = BPF_JMP | BPF_JNE | BPF_K, .dst_reg = 5, .imm = IPPROTO_UDP, .off = 8 },
		{ .code = BPF_LDX | BPF_MEM | BPF_H, .dst_reg = 5, .src_reg = 2, .off = TO },
		{ .code = BPF_JMP | BPF_JNE | BPF_K, .dst_reg = 5, .imm = htons(port), .off = 6 },
		{ .code = BPF_LDX | BPF_MEM | BPF_W, .dst_reg = 2, .src_reg = 6, .off = 16 },	 /* rx_queue_index */
		{ .code = BPF_LD | BPF_DW | BPF_IMM, .dst_reg = 1, .src_reg = BPF_PSEUDO_MAP_FD, .imm = e->map }, /* 15 */
		{ 0 },
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 3, .imm = XDP_PASS },
		{ .code = BPF_JMP | BPF_CALL, .imm = BPF_FUNC_redirect_map },
		{ .code = BPF_JMP | BPF_EXIT },
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 0, .imm = XDP_PASS },		 /* 20 */
		{ .code = BPF_JMP | BPF_EXIT },
	};
	LIBBPF_OPTS(bpf_prog_load_opts, options);
	LIBBPF_OPTS(bpf_link_create_opts, where, .flags = XDP_FLAGS_DRV_MODE);

	e->program = bpf_prog_load(BPF_PROG_TYPE_XDP, "echo", "GPL", code, sizeof(code) / sizeof(*code), &options);
	if (e->program < 0)
		die("load the XDP program", errno);
	e->link = bpf_link_create(e->program, if_nametoindex(name), BPF_XDP, &where);
	if (e->link < 0)
		die("attach the XDP program", errno);
}

static void swap(void *a, void *b, size_t n)
{
	uint8_t kept[8];

	memcpy(kept, a, n);
	memcpy(a, b, n);
	memcpy(b, kept, n);
}

/* turn makes an order of a tick. */
static void turn(struct packet *p)
{
	swap(p->eth.ether_shost, p->eth.ether_dhost, ETH_ALEN);
	swap(&p->ip.saddr, &p->ip.daddr, sizeof(p->ip.saddr));
	swap(&p->udp.source, &p->udp.dest, sizeof(p->udp.source));
	p->udp.check = 0;
	if (p->opcode == 'T') /* the first byte behind UDP */
		p->opcode = 'O';
}

/* echo sends back what has come. */
static uint32_t echo(struct end *e)
{
	uint32_t from, to;
	const uint32_t n = xsk_ring_cons__peek(&e->rx, BATCH, &from);

	if (n == 0)
		return 0;
	if (xsk_ring_prod__reserve(&e->tx, n, &to) != n)
		die("find room in the tx ring", ENOSPC); /* it has room for all frames */
	for (uint32_t i = 0; i < n; i++) {
		const struct xdp_desc *d = xsk_ring_cons__rx_desc(&e->rx, from + i);

		if (d->len > offsetof(struct packet, opcode))
			turn(packet_at(e, d->addr));
		*xsk_ring_prod__tx_desc(&e->tx, to + i) = (struct xdp_desc){ .addr = d->addr, .len = d->len };
	}
	xsk_ring_cons__release(&e->rx, n);
	transmit(e, n);
	return n;
}

/* give_back returns the frames of what was sent to the fill ring. */
static void give_back(struct end *e)
{
	uint32_t from, to;
	const uint32_t n = xsk_ring_cons__peek(&e->completion, BATCH, &from);

	if (n == 0)
		return;
	/* The ring has room for all frames, but the kernel says later what it has taken from it. */
	if (xsk_ring_prod__reserve(&e->fill, n, &to) != n) {
		xsk_ring_cons__cancel(&e->completion, n);
		return;
	}
	for (uint32_t i = 0; i < n; i++)
		*xsk_ring_prod__fill_addr(&e->fill, to + i) = *xsk_ring_cons__comp_addr(&e->completion, from + i) / FRAME * FRAME;
	xsk_ring_prod__submit(&e->fill, n);
	xsk_ring_cons__release(&e->completion, n);
	e->in_flight -= n;
}

int main(int argc, char **argv)
{
	struct end e = { .ring = RING, .frames = RING, .native = true };
	unsigned long port = argc == 3 ? number(argv[2], "port") : 0;
	uint64_t sent = 0;

	if (port == 0 || port > 65535) {
		fprintf(stderr, "Usage: tick-echo INTERFACE PORT\n");
		return 2;
	}
	signal(SIGINT, end_it);
	signal(SIGTERM, end_it);
	open_end(&e, argv[1]);
	load_for(&e, argv[1], port);
	fprintf(stderr, "answering ticks\n");
	while (!ending) {
		sent += echo(&e);
		give_back(&e);
	}
	close_end(&e);
	printf("{\"orders\": %llu}\n", (unsigned long long)sent);
	return 0;
}
