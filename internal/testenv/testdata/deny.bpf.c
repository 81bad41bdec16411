//go:build ignore

// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
//
// A program of somebody else, for libxdp's tools to load: it drops and counts UDP packets to port 9, and lets all others pass to
// those behind it. It takes packets that fill several buffers, which xdp-loader does not tell.

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "GPL";

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, 1);
} seen SEC(".maps");

/* What libxdp reads: the names of members are its words, the lengths of arrays their values. */
struct {
	__uint(priority, 10);
	__uint(XDP_PASS, 1);
} _other_deny SEC(".xdp_run_config");

SEC("xdp.frags")
int other_deny(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethhdr *eth = data;
	struct iphdr *ip = data + sizeof(*eth);
	struct udphdr *udp = (void *)ip + sizeof(*ip);
	__u32 zero = 0;
	__u64 *n;

	if ((void *)(udp + 1) > end || eth->h_proto != bpf_htons(ETH_P_IP) || ip->ihl != 5 || ip->protocol != IPPROTO_UDP || udp->dest != bpf_htons(9))
		return XDP_PASS;
	n = bpf_map_lookup_elem(&seen, &zero);
	if (n)
		__sync_fetch_and_add(n, 1);
	return XDP_DROP;
}
