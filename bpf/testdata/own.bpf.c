//go:build ignore

// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
//
// Programs of a user's own, as tests give them to the loader: docs/reference/filters.md has the contract.

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "GPL";

enum judged { TAKEN, LEFT, DROPPED, STRANGE, JUDGED };

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, enum judged);
	__type(value, __u64);
	__uint(max_entries, JUDGED);
} counters SEC(".maps");

/* Ports and what becomes of their packets, filled in by the object itself. */
volatile const __u16 first = 7000;
volatile __u32 seen = 0;

static __noinline int count(enum judged judged, int action)
{
	__u64 *n = bpf_map_lookup_elem(&counters, &judged);

	if (n)
		(*n)++;
	seen++;
	return action;
}

static __always_inline int port(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethhdr *eth = data;
	struct iphdr *ip = data + sizeof(*eth);
	struct udphdr *udp = (void *)ip + sizeof(*ip);

	if ((void *)(udp + 1) > end || eth->h_proto != bpf_htons(ETH_P_IP) || ip->ihl != 5 || ip->protocol != IPPROTO_UDP)
		return -1;
	return bpf_ntohs(udp->dest);
}

static __always_inline int judge(struct xdp_md *ctx)
{
	switch (port(ctx) - first) {
	case 0:
		return count(TAKEN, XDP_REDIRECT);
	case 1:
		return count(DROPPED, XDP_DROP);
	case 2:
		return count(STRANGE, 77);
	}
	return count(LEFT, XDP_PASS);
}

SEC("xdp.frags")
int by_port(struct xdp_md *ctx)
{
	return judge(ctx);
}

SEC("xdp")
int one_buffer(struct xdp_md *ctx)
{
	return judge(ctx);
}

/* What follows is refused. */

SEC("socket")
int of_socket(struct __sk_buff *skb)
{
	return skb->len;
}

SEC("xdp.frags")
int moves_head(struct xdp_md *ctx)
{
	return bpf_xdp_adjust_head(ctx, 14) ? XDP_PASS : XDP_REDIRECT;
}

/* Without a look at where the packet ends, which the verifier minds. */
SEC("xdp.frags")
int reads_behind(struct xdp_md *ctx)
{
	return *(__u8 *)(long)ctx->data ? XDP_PASS : XDP_REDIRECT;
}
