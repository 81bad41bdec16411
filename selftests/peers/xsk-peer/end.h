/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An end of packets that look like RoCE's, over an AF_XDP socket in copy mode: what xsk-pingpong and xsk-records share. Nothing but
 * an end's own thread uses it.
 */
#ifndef END_H
#define END_H

#include <arpa/inet.h>
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
	FRAME = 4096,
	FRAME_HEADROOM = 256, /* XDP_PACKET_HEADROOM: the kernel's, in front of what it receives */
	ICRC = 4,
	PATH_MTU = 4096, /* the most that a packet carries */
	PATIENCE = 10,	 /* seconds */
	PORT = 4791,
};

/* The opcodes of RC that the packets have. */
enum { SEND_FIRST = 0x00, SEND_LAST = 0x02, SEND_ONLY = 0x04, ACKNOWLEDGE = 0x11 };

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
	uint32_t ring, frames;	  /* entries of each ring; frames in the memory: the first of them, a ring full, are for what comes */
	uint32_t held, in_flight; /* descriptors looked at and sent */
	bool client;
	bool long_packets; /* that do not fit a frame */
	bool native;	   /* the XDP program is in the driver, and not in front of the kernel's stack */
};

/* load makes a program that gives every packet of any number of frames to the socket. */
static inline void load(struct end *e, const char *name)
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
	/* in front of the stack a program with frags has the kernel make each packet anew */
	LIBBPF_OPTS(bpf_prog_load_opts, options, .prog_flags = e->native ? BPF_F_XDP_HAS_FRAGS : 0);
	LIBBPF_OPTS(bpf_link_create_opts, where, .flags = e->native ? XDP_FLAGS_DRV_MODE : XDP_FLAGS_SKB_MODE);

	e->program = bpf_prog_load(BPF_PROG_TYPE_XDP, "peer", "GPL", code, sizeof(code) / sizeof(*code), &options);
	if (e->program < 0)
		die("load the XDP program", errno);
	e->link = bpf_link_create(e->program, if_nametoindex(name), BPF_XDP, &where);
	if (e->link < 0)
		die("attach the XDP program", errno);
}

static inline int try_socket(struct end *e, const char *name)
{
	const struct xsk_umem_config umem = { .fill_size = e->ring, .comp_size = e->ring, .frame_size = FRAME };
	const struct xsk_socket_config socket = {
		.rx_size = e->ring,
		.tx_size = e->ring,
		.libxdp_flags = XSK_LIBXDP_FLAGS__INHIBIT_PROG_LOAD,
		.bind_flags = XDP_COPY | XDP_USE_NEED_WAKEUP | (e->long_packets ? XDP_USE_SG : 0),
	};
	int err;

	err = xsk_umem__create(&e->umem, e->memory, (uint64_t)e->frames * FRAME, &e->fill, &e->completion, &umem);
	if (err)
		die("register the memory", -err);
	err = xsk_socket__create(&e->socket, name, 0, e->umem, &e->rx, &e->tx, &socket);
	if (err)
		xsk_umem__delete(e->umem);
	return err;
}

/* open_socket waits for a queue that the kernel has not freed yet. */
static inline void open_socket(struct end *e, const char *name)
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
static inline void supply(struct end *e)
{
	uint32_t at;

	if (xsk_ring_prod__reserve(&e->fill, e->ring, &at) != e->ring)
		die("fill the fill ring", ENOSPC);
	for (uint32_t i = 0; i < e->ring; i++)
		*xsk_ring_prod__fill_addr(&e->fill, at + i) = (uint64_t)i * FRAME;
	xsk_ring_prod__submit(&e->fill, e->ring);
}

/* open_end opens an end on an interface. Packets come once a program is loaded. */
static inline void open_end(struct end *e, const char *name)
{
	e->size = (size_t)e->frames * FRAME;
	e->memory = map_huge(&e->size);
	open_socket(e, name);
	supply(e);
}

static inline struct packet *packet_at(struct end *e, uint64_t address) { return (struct packet *)(e->memory + address); }

static inline uint16_t ip_checksum(const struct iphdr *ip)
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
static inline uint32_t address(bool client) { return htonl(0xc0000201 + client); }

/* length_of is of a packet that carries so many bytes. */
static inline uint32_t length_of(uint32_t bytes) { return sizeof(struct packet) + bytes + ICRC; }

static inline void write_headers(struct end *e, struct packet *p, uint8_t opcode, uint32_t length, const uint8_t *from, const uint8_t *to)
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

static inline void own_mac(const char *name, uint8_t *mac)
{
	struct ifreq request = { 0 };
	const int fd = socket(AF_INET, SOCK_DGRAM, 0);

	strncpy(request.ifr_name, name, IFNAMSIZ - 1);
	if (fd < 0 || ioctl(fd, SIOCGIFHWADDR, &request))
		die("ask for the interface's address", errno);
	close(fd);
	memcpy(mac, request.ifr_hwaddr.sa_data, ETH_ALEN);
}

/* pieces is how many descriptors a packet takes. */
static inline uint32_t pieces(uint32_t length) { return length > FRAME ? 2 : 1; }

/* put fills in the descriptors of a packet and returns the place of the next. */
static inline uint32_t put(struct end *e, uint32_t at, uint64_t frame, uint32_t length, uint32_t number)
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

/* reap takes completions, until no more than so many descriptors are being sent. */
static inline void reap(struct end *e, uint32_t most)
{
	do {
		uint32_t at, n = xsk_ring_cons__peek(&e->completion, e->ring, &at);

		xsk_ring_cons__release(&e->completion, n);
		e->in_flight -= n;
	} while (e->in_flight > most);
}

/* transmit sends n descriptors that were filled in, with one call if the kernel takes that many. */
static inline void transmit(struct end *e, uint32_t n)
{
	xsk_ring_prod__submit(&e->tx, n);
	e->in_flight += n;
	while (sendto(xsk_socket__fd(e->socket), NULL, 0, MSG_DONTWAIT, NULL, 0) < 0)
		if (errno != EAGAIN && errno != EBUSY && errno != ENOBUFS)
			die("send", errno);
}

/* recycle gives back the frames of what was looked at. */
static inline void recycle(struct end *e)
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

static inline uint64_t nanoseconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline void close_end(struct end *e)
{
	close(e->link);
	close(e->program);
	close(e->map);
	xsk_socket__delete(e->socket);
	xsk_umem__delete(e->umem);
	munmap(e->memory, e->size);
}

#endif
