//go:build ignore

// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
//
// The XDP program of unifiedd: it hands the packets a filter accepts to the AF_XDP
// socket of their queue and leaves every other packet to the kernel, and counts both.
//
// The parser writes what it understood of a packet to one flat struct; the filter sees
// only that struct. The body of unifiedd_filter is replaced by the loader.

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include <stdbool.h>
#include <stddef.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define MAX_TAGS 2
#define MAX_EXTENSIONS 8
#define MAX_OFFSET 0x7fff /* behind the longest headers; the verifier needs a bound */
#define ETHERTYPE_QINQ_OLD 0x9100
#define IP_OFFSET_MASK 0x1fff
#define IP6_OFFSET_MASK 0xfff8

/* What became of a packet. Shared with Go: bpf2go generates its constants. */
enum verdict {
	VERDICT_REDIRECTED, /* given to the AF_XDP socket of its queue */
	VERDICT_NO_MATCH,   /* left to the kernel: the filter does not want it */
	VERDICT_TOO_LONG,   /* left to the kernel: wanted, but longer than max_len */
	VERDICT_NO_SOCKET,  /* left to the kernel: wanted, but no socket is bound there */
	VERDICT_UNCLEAR,    /* left to the kernel: the user's program returned what means nothing */
	VERDICT_DROPPED,    /* dropped, as a rule or the user's program says */
	VERDICT_COUNT,
};

/* What is to become of a packet. The loader makes functions that return it: selection.go has the same numbers. */
enum decision {
	DECISION_LEAVE,
	DECISION_TAKE,
	DECISION_DROP,
	DECISION_NONE, /* the user's program returned something else */
};

/* A decision and, above it, the number of the rule that made it, from 1; 0: there is none. */
#define DECISION_BITS 8

/* Which fields of struct parsed are valid. A field that is not is zero. */
enum parsed_flag {
	PARSED_ETHER = 1 << 0, /* eth_dst, eth_src, ethertype */
	PARSED_IPV4 = 1 << 1,  /* src4, dst4: of IPv4, ARP or RARP */
	PARSED_IPV6 = 1 << 2,  /* src6, dst6 */
	PARSED_PROTO = 1 << 3, /* proto */
	PARSED_PORTS = 1 << 4, /* src_port, dst_port */
};

/*
 * What the filter sees. Addresses are in network order, numbers in host order. The Go
 * package filter holds the offsets of these fields; a test compares them with the BTF of
 * this object. No padding: every byte is written before a pointer to it is passed on.
 */
struct parsed {
	__u64 src6[2];
	__u64 dst6[2];
	__u32 src4;
	__u32 dst4;
	__u8 eth_dst[8]; /* six bytes and two zeros: one load compares them */
	__u8 eth_src[8];
	enum parsed_flag flags;
	__u16 ethertype; /* behind the tags */
	__u16 vlan[MAX_TAGS];
	__u16 src_port;
	__u16 dst_port;
	__u8 tags;  /* how many of vlan are valid */
	__u8 proto; /* behind the extension headers */
};

struct counter {
	__u64 packets;
	__u64 bytes;
};

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__type(key, __u32);
	__type(value, __u32);
	__uint(max_entries, 1); /* the loader sets the number of queues */
} xsks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, enum verdict);
	__type(value, struct counter);
	__uint(max_entries, VERDICT_COUNT);
} counters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, struct counter);
	__uint(max_entries, 1); /* the loader sets the number of rules */
} rules SEC(".maps");

/* Longest packet a socket can take, in bytes; 0 when every length fits. */
volatile const __u32 max_len = 0;

/* Whether to write a timestamp in front of each packet. */
volatile const __u8 timestamps = 0;

/* Whether the user's program decides, and not the filter. */
volatile const __u8 own_program = 0;

/*
 * Set, and never cleared, when a driver had no room for a timestamp. Written here before
 * the packet is redirected; user space maps this word and reads it once per batch.
 */
volatile __u32 meta_refused = 0;

/*
 * What the variant for the card's own clock writes in front of each packet. The time of the
 * system is right in front of it, as without.
 */
struct arrival {
	__u64 card;   /* of the card's clock, in nanoseconds; 0 where it has none for the packet */
	__u64 system; /* CLOCK_MONOTONIC in nanoseconds */
};

/* Asks the driver; there only in a program that is bound to a device (Linux 6.3). */
extern int bpf_xdp_metadata_rx_timestamp(const struct xdp_md *ctx, __u64 *timestamp) __ksym;

/* Where the parser stands: so many bytes into the packet. */
struct cursor {
	__u32 offset;
	__u32 proto; /* what the header there is, behind IPv6 */
};

/* take returns len bytes at the cursor and moves it on, or NULL at the end of the data. */
static __always_inline void *take(struct xdp_md *ctx, struct cursor *c, __u32 len)
{
	__u8 *end = (__u8 *)(long)ctx->data_end;
	__u8 *at = (__u8 *)(long)ctx->data;

	if (c->offset > MAX_OFFSET)
		return NULL;
	at += c->offset;
	if (at + len > end)
		return NULL;
	c->offset += len;
	return at;
}

struct ethernet {
	__u8 dst[6];
	__u8 src[6];
	__be16 type;
};

struct vlan_tag {
	__be16 control;
	__be16 type;
};

struct ipv4 {
	__u8 version_length;
	__u8 tos;
	__be16 length;
	__be16 id;
	__be16 fragment;
	__u8 ttl;
	__u8 proto;
	__be16 checksum;
	__be32 src;
	__be32 dst;
};

struct ipv6 {
	__be32 version_class_flow;
	__be16 length;
	__u8 next;
	__u8 hops;
	__u8 src[16];
	__u8 dst[16];
};

struct extension {
	__u8 next;
	__u8 length;
	__be16 fragment; /* of a fragment header */
	__u8 rest[4];
};

struct arp {
	__be16 hardware;
	__be16 protocol;
	__u8 hardware_length;
	__u8 protocol_length;
	__be16 operation;
	__u8 sender_mac[6];
	__u8 sender_ip[4];
	__u8 target_mac[6];
	__u8 target_ip[4];
};

struct ports {
	__be16 src;
	__be16 dst;
};

static __always_inline bool is_tag(__u16 type)
{
	return type == ETH_P_8021Q || type == ETH_P_8021AD || type == ETHERTYPE_QINQ_OLD;
}

static __always_inline bool parse_ethernet(struct xdp_md *ctx, struct cursor *c, struct parsed *p)
{
	struct ethernet *eth = take(ctx, c, sizeof(*eth));

	if (!eth)
		return false;
	__builtin_memcpy(p->eth_dst, eth->dst, sizeof(eth->dst));
	__builtin_memcpy(p->eth_src, eth->src, sizeof(eth->src));
	p->ethertype = bpf_ntohs(eth->type);
	p->flags |= PARSED_ETHER;
	return true;
}

static __always_inline bool parse_tags(struct xdp_md *ctx, struct cursor *c, struct parsed *p)
{
#pragma unroll
	for (int i = 0; i < MAX_TAGS; i++) {
		struct vlan_tag *tag;

		if (!is_tag(p->ethertype))
			return true;
		tag = take(ctx, c, sizeof(*tag));
		if (!tag)
			return false;
		p->vlan[i] = bpf_ntohs(tag->control) & 0xfff;
		p->tags = i + 1;
		p->ethertype = bpf_ntohs(tag->type);
	}
	return true;
}

static __always_inline void parse_ports(struct xdp_md *ctx, struct cursor *c, struct parsed *p)
{
	struct ports *ports;

	if (p->proto != IPPROTO_TCP && p->proto != IPPROTO_UDP && p->proto != IPPROTO_SCTP)
		return;
	ports = take(ctx, c, sizeof(*ports));
	if (!ports)
		return;
	p->src_port = bpf_ntohs(ports->src);
	p->dst_port = bpf_ntohs(ports->dst);
	p->flags |= PARSED_PORTS;
}

static __always_inline void set_proto(struct parsed *p, __u8 proto)
{
	p->proto = proto;
	p->flags |= PARSED_PROTO;
}

static __always_inline void parse_ipv4(struct xdp_md *ctx, struct cursor *c, struct parsed *p)
{
	struct ipv4 *ip = take(ctx, c, sizeof(*ip));
	__u32 length;

	if (!ip)
		return;
	p->src4 = ip->src;
	p->dst4 = ip->dst;
	p->flags |= PARSED_IPV4;
	set_proto(p, ip->proto);
	if (bpf_ntohs(ip->fragment) & IP_OFFSET_MASK)
		return;
	length = (ip->version_length & 0xf) * 4;
	if (length < sizeof(*ip))
		return;
	c->offset += length - sizeof(*ip);
	parse_ports(ctx, c, p);
}

/* extension_length returns the bytes of an extension header, or 0 if it is none. */
static __always_inline __u32 extension_length(__u32 proto, __u8 length)
{
	switch (proto) {
	case IPPROTO_HOPOPTS:
	case IPPROTO_ROUTING:
	case IPPROTO_DSTOPTS:
		return (length + 1) * 8;
	case IPPROTO_AH:
		return (length + 2) * 4;
	case IPPROTO_FRAGMENT:
		return sizeof(struct extension);
	}
	return 0;
}

/* What unifiedd_extension found at the cursor. */
enum step {
	STEP_TRUNCATED, /* an extension header, and the packet ends */
	STEP_OVER,      /* an extension header, and the cursor is behind it */
	STEP_FRAGMENT,  /* the same, but what follows is the middle of a packet */
	STEP_UPPER,     /* no extension header */
};

/*
 * unifiedd_extension goes over one extension header. A global function, so that the
 * verifier walks it once and not for every way through every header.
 */
__noinline int unifiedd_extension(struct xdp_md *ctx, struct cursor *c)
{
	struct extension *ext;
	__u32 start, length;

	if (!c)
		return STEP_TRUNCATED;
	if (!extension_length(c->proto, 0))
		return STEP_UPPER;
	start = c->offset;
	ext = take(ctx, c, sizeof(*ext));
	if (!ext)
		return STEP_TRUNCATED;
	length = extension_length(c->proto, ext->length);
	if (c->proto == IPPROTO_FRAGMENT && (bpf_ntohs(ext->fragment) & IP6_OFFSET_MASK)) {
		c->proto = ext->next;
		return STEP_FRAGMENT;
	}
	c->proto = ext->next;
	c->offset = start + length;
	return STEP_OVER;
}

static __always_inline int skip_extensions(struct xdp_md *ctx, struct cursor *c)
{
	int step = STEP_OVER;

	for (int i = 0; i <= MAX_EXTENSIONS && step == STEP_OVER; i++)
		step = unifiedd_extension(ctx, c);
	return step;
}

static __always_inline void parse_ipv6(struct xdp_md *ctx, struct cursor *c, struct parsed *p)
{
	struct ipv6 *ip = take(ctx, c, sizeof(*ip));
	int step;

	if (!ip)
		return;
	__builtin_memcpy(p->src6, ip->src, sizeof(p->src6));
	__builtin_memcpy(p->dst6, ip->dst, sizeof(p->dst6));
	p->flags |= PARSED_IPV6;
	c->proto = ip->next;
	step = skip_extensions(ctx, c);
	if (step != STEP_UPPER && step != STEP_FRAGMENT)
		return;
	set_proto(p, c->proto);
	if (step == STEP_UPPER)
		parse_ports(ctx, c, p);
}

static __always_inline void parse_arp(struct xdp_md *ctx, struct cursor *c, struct parsed *p)
{
	struct arp *arp = take(ctx, c, sizeof(*arp));

	if (!arp || arp->hardware_length != sizeof(arp->sender_mac) ||
	    arp->protocol_length != sizeof(arp->sender_ip))
		return;
	__builtin_memcpy(&p->src4, arp->sender_ip, sizeof(p->src4));
	__builtin_memcpy(&p->dst4, arp->target_ip, sizeof(p->dst4));
	p->flags |= PARSED_IPV4;
}

/*
 * unifiedd_parse fills p from the linear part of the packet. What is not there, or makes
 * no sense, is left zero. A global function, so that the verifier walks it once.
 */
__noinline int unifiedd_parse(struct xdp_md *ctx, struct parsed *p)
{
	struct cursor c = {};

	if (!p || !parse_ethernet(ctx, &c, p) || !parse_tags(ctx, &c, p))
		return 0;
	switch (p->ethertype) {
	case ETH_P_IP:
		parse_ipv4(ctx, &c, p);
		break;
	case ETH_P_IPV6:
		parse_ipv6(ctx, &c, p);
		break;
	case ETH_P_ARP:
	case ETH_P_RARP:
		parse_arp(ctx, &c, p);
		break;
	}
	return 0;
}

/*
 * unifiedd_filter says whether the packet is wanted: a decision, with the number of its rule.
 * The loader replaces its body.
 */
__weak __noinline int unifiedd_filter(struct parsed *p)
{
	return p != NULL;
}

/* unifiedd_own stands for the user's program. The loader has it call that. */
__weak __noinline int unifiedd_own(struct xdp_md *ctx)
{
	return ctx ? XDP_PASS : XDP_ABORTED;
}

/* own_decision translates what the user's program returned. */
static __always_inline __u32 own_decision(int action)
{
	switch (action) {
	case XDP_PASS:
		return DECISION_LEAVE;
	case XDP_REDIRECT:
		return DECISION_TAKE;
	case XDP_DROP:
		return DECISION_DROP;
	}
	return DECISION_NONE;
}

static __always_inline __u32 decide(struct xdp_md *ctx)
{
	struct parsed p = {};

	if (own_program)
		return own_decision(unifiedd_own(ctx));
	unifiedd_parse(ctx, &p);
	return unifiedd_filter(&p);
}

static __always_inline void count_rule(__u32 number, __u64 length)
{
	__u32 rule = number - 1;
	struct counter *counter = bpf_map_lookup_elem(&rules, &rule);

	if (counter) {
		counter->packets++;
		counter->bytes += length;
	}
}

static __always_inline int count(enum verdict verdict, __u64 length, int action)
{
	struct counter *counter = bpf_map_lookup_elem(&counters, &verdict);

	if (counter) {
		counter->packets++;
		counter->bytes += length;
	}
	return action;
}

static __always_inline bool write_timestamp(struct xdp_md *ctx)
{
	__u64 *meta;

	if (bpf_xdp_adjust_meta(ctx, -(int)sizeof(*meta)))
		return false;
	meta = (void *)(long)ctx->data_meta;
	if ((void *)(meta + 1) > (void *)(long)ctx->data)
		return false;
	*meta = bpf_ktime_get_ns();
	return true;
}

/* The driver is asked first: some keep the time where metadata is written. */
static __always_inline bool write_arrival(struct xdp_md *ctx)
{
	struct arrival *meta;
	__u64 card = 0;

	if (bpf_xdp_metadata_rx_timestamp(ctx, &card))
		card = 0;
	if (bpf_xdp_adjust_meta(ctx, -(int)sizeof(*meta)))
		return false;
	meta = (void *)(long)ctx->data_meta;
	if ((void *)(meta + 1) > (void *)(long)ctx->data)
		return false;
	meta->card = card;
	meta->system = bpf_ktime_get_ns();
	return true;
}

static __always_inline void stamp(struct xdp_md *ctx, bool card)
{
	bool written = card ? write_arrival(ctx) : write_timestamp(ctx);

	if (!written && !meta_refused)
		meta_refused = 1;
}

static __always_inline int capture(struct xdp_md *ctx, bool card)
{
	__u32 queue = ctx->rx_queue_index;
	__u64 length = bpf_xdp_get_buff_len(ctx);
	__u32 decision = decide(ctx);
	int action;

	if (decision >> DECISION_BITS)
		count_rule(decision >> DECISION_BITS, length);
	switch (decision & ((1 << DECISION_BITS) - 1)) {
	case DECISION_TAKE:
		break;
	case DECISION_LEAVE:
		return count(VERDICT_NO_MATCH, length, XDP_PASS);
	case DECISION_DROP:
		return count(VERDICT_DROPPED, length, XDP_DROP);
	default:
		return count(VERDICT_UNCLEAR, length, XDP_PASS);
	}
	if (max_len && length > max_len)
		return count(VERDICT_TOO_LONG, length, XDP_PASS);
	/* Looked up first: metadata on a packet left to the kernel would keep it out of GRO. */
	if (!bpf_map_lookup_elem(&xsks, &queue))
		return count(VERDICT_NO_SOCKET, length, XDP_PASS);
	if (timestamps)
		stamp(ctx, card);
	action = bpf_redirect_map(&xsks, queue, XDP_PASS);
	if (action != XDP_REDIRECT)
		return count(VERDICT_NO_SOCKET, length, action);
	return count(VERDICT_REDIRECTED, length, action);
}

SEC("xdp.frags")
int unifiedd_capture(struct xdp_md *ctx)
{
	return capture(ctx, false);
}

/* The same with times of the card's own clock. Loaded for one device. */
SEC("xdp.frags")
int unifiedd_capture_card(struct xdp_md *ctx)
{
	return capture(ctx, true);
}
