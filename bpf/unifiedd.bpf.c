//go:build ignore

// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
//
// The XDP program of unifiedd: it hands the packets a filter accepts to the AF_XDP
// socket of their queue and leaves every other packet to the kernel, and counts both.
//
// The filter reads the packet itself, behind checks of where it ends. The body of
// unifiedd_filter is replaced by the loader.

#include <linux/bpf.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <bpf/bpf_helpers.h>
#include <stdbool.h>
#include <stddef.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define MAX_OFFSET 0x7fff /* behind the longest headers; the verifier needs a bound */
#define MAX_CHAIN 32	  /* headers that unifiedd_chain goes over, as in package filter */
#define NO_NEXT_HEADER 59

/* What became of a packet. Shared with Go: bpf2go generates its constants. */
enum verdict {
	VERDICT_REDIRECTED, /* given to the AF_XDP socket of its queue */
	VERDICT_NO_MATCH,   /* left to the kernel: the filter does not want it */
	VERDICT_TOO_LONG,   /* left to the kernel: wanted, but longer than max_len */
	VERDICT_NO_SOCKET,  /* left to the kernel: wanted, but no socket is bound there; or to be dropped, and it is dispatched */
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

/*
 * A decision and, above it, the number of the rule that made it, from 1 (0: there is none),
 * and above that the seat that it was made for. selection.go has the same numbers.
 */
#define DECISION_BITS 8
#define RULE_BITS 8
#define SEAT_SHIFT (DECISION_BITS + RULE_BITS)
#define SEATS 16

struct counter {
	__u64 packets;
	__u64 bytes;
};

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__type(key, __u32);
	__type(value, __u32);
	__uint(max_entries, 1); /* the loader sets the number of queues, for each seat */
} xsks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, enum verdict); /* and VERDICT_COUNT for each seat before */
	__type(value, struct counter);
	__uint(max_entries, SEATS * VERDICT_COUNT);
} counters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, struct counter);
	__uint(max_entries, 1); /* the loader sets how many numbers rules may have */
} rules SEC(".maps");

/* How many queues each seat has sockets for. */
volatile const __u32 queues = 1;

/* Longest packet a socket can take, in bytes; 0 when every length fits. */
volatile const __u32 max_len = 0;

/* Whether to write a timestamp in front of each packet. */
volatile const __u8 timestamps = 0;

/* Whether the user's program decides, and not the filter. */
volatile const __u8 own_program = 0;

/* Whether the program is one of those that a dispatcher calls, and may be there longer than its process. */
volatile const __u8 dispatched = 0;

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

/* Where unifiedd_chain stands. */
struct chain {
	__u32 base;  /* of the IP header in the packet */
	__u32 next;  /* the next header, from there */
	__u32 proto; /* what it is */
	__u32 six;   /* whether the packet is IPv6 */
};

/* byte_at returns a byte of the packet, or -1 behind the end of its linear part. */
static __always_inline int byte_at(struct xdp_md *ctx, __u32 offset)
{
	__u8 *end = (__u8 *)(long)ctx->data_end;
	__u8 *at = (__u8 *)(long)ctx->data;

	if (offset > MAX_OFFSET)
		return -1;
	at += offset;
	if (at + 1 > end)
		return -1;
	return *at;
}

enum step {
	STEP_TRUNCATED, /* the packet ends */
	STEP_OVER,      /* over a header */
	STEP_END,       /* the header is none to go over */
};

/* is_header reports whether a header of an IP packet is one to go over. */
static __always_inline bool is_header(struct chain *c)
{
	switch (c->proto) {
	case IPPROTO_HOPOPTS:
	case IPPROTO_ROUTING:
	case IPPROTO_FRAGMENT:
	case IPPROTO_DSTOPTS:
		return c->six;
	}
	return c->proto == IPPROTO_AH;
}

/*
 * unifiedd_step goes over one header. A global function, so that the verifier walks it
 * once and not for every way through every header.
 */
__weak __noinline int unifiedd_step(struct xdp_md *ctx, struct chain *c)
{
	int proto, length;

	if (!c)
		return STEP_TRUNCATED;
	if (!is_header(c))
		return STEP_END;
	proto = byte_at(ctx, c->base + c->next);
	length = byte_at(ctx, c->base + c->next + 1);
	if (proto < 0 || length < 0)
		return STEP_TRUNCATED;
	/* What libpcap's code does: the length of AH becomes the place of the next. */
	if (c->proto == IPPROTO_AH)
		c->next = (length + 2) * 4;
	else
		c->next += (length + 1) * 8;
	c->proto = proto;
	return STEP_OVER;
}

/*
 * unifiedd_chain finds the protocol behind the headers of the IP packet at base, or stops
 * at the one wanted; -1: the packet ends. Filters with protochain call it.
 */
__weak __noinline int unifiedd_chain(struct xdp_md *ctx, __u32 base, __u32 want, __u32 six)
{
	struct chain c = {.base = base, .six = six, .next = 40};
	int proto = byte_at(ctx, base + (six ? 6 : 9));
	int length = byte_at(ctx, base);
	int step = STEP_OVER;

	if (proto < 0 || length < 0)
		return -1;
	c.proto = proto;
	if (!six)
		c.next = (length & 15) * 4;
	for (int i = 0; i < MAX_CHAIN && step == STEP_OVER; i++) {
		if (c.proto == want || c.proto == NO_NEXT_HEADER)
			break;
		step = unifiedd_step(ctx, &c);
	}
	return step == STEP_TRUNCATED ? -1 : (int)(c.proto & 0xff);
}

/*
 * unifiedd_filter says whether the packet is wanted: a decision, with the number of its rule.
 * The loader replaces its body, and leaves out the functions that the new one does not call.
 */
__weak __noinline int unifiedd_filter(struct xdp_md *ctx, __u32 length)
{
	return unifiedd_chain(ctx, length, 0, 0);
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

static __always_inline __u32 decide(struct xdp_md *ctx, __u32 length)
{
	if (own_program)
		return own_decision(unifiedd_own(ctx));
	return unifiedd_filter(ctx, length);
}

static __always_inline void count_rule(__u32 number, __u64 length)
{
	struct counter *counter = bpf_map_lookup_elem(&rules, &number);

	if (counter) {
		counter->packets++;
		counter->bytes += length;
	}
}

static __always_inline int count(__u32 seat, enum verdict verdict, __u64 length, int action)
{
	__u32 key = seat * VERDICT_COUNT + verdict;
	struct counter *counter = bpf_map_lookup_elem(&counters, &key);

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
	__u32 decision = decide(ctx, length);
	__u32 rule = decision >> DECISION_BITS & ((1 << RULE_BITS) - 1);
	__u32 seat = decision >> SEAT_SHIFT;
	__u32 socket = seat * queues + queue;
	int action;

	if (rule)
		count_rule(rule, length);
	switch (decision & ((1 << DECISION_BITS) - 1)) {
	case DECISION_TAKE:
		break;
	case DECISION_LEAVE:
		return count(seat, VERDICT_NO_MATCH, length, XDP_PASS);
	case DECISION_DROP:
		/* The kernel takes the sockets of a process that ends out of the map. */
		if (dispatched && (queue >= queues || !bpf_map_lookup_elem(&xsks, &socket)))
			return count(seat, VERDICT_NO_SOCKET, length, XDP_PASS);
		return count(seat, VERDICT_DROPPED, length, XDP_DROP);
	default:
		return count(seat, VERDICT_UNCLEAR, length, XDP_PASS);
	}
	if (max_len && length > max_len)
		return count(seat, VERDICT_TOO_LONG, length, XDP_PASS);
	if (queue >= queues) /* that of another seat would be meant */
		return count(seat, VERDICT_NO_SOCKET, length, XDP_PASS);
	/* Looked up first: metadata on a packet left to the kernel would keep it out of GRO. */
	if (!bpf_map_lookup_elem(&xsks, &socket))
		return count(seat, VERDICT_NO_SOCKET, length, XDP_PASS);
	if (timestamps)
		stamp(ctx, card);
	action = bpf_redirect_map(&xsks, socket, XDP_PASS);
	if (action != XDP_REDIRECT)
		return count(seat, VERDICT_NO_SOCKET, length, action);
	return count(seat, VERDICT_REDIRECTED, length, action);
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
