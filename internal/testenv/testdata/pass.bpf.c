//go:build ignore

// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
//
// A program of somebody else, for libxdp's tools to load: it counts what it sees and lets it pass.
// It takes no packets that fill several buffers.

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "GPL";

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, 1);
} seen SEC(".maps");

SEC("xdp")
int other_pass(struct xdp_md *ctx)
{
	__u32 zero = 0;
	__u64 *n = bpf_map_lookup_elem(&seen, &zero);

	if (n)
		__sync_fetch_and_add(n, 1);
	return ctx ? XDP_PASS : XDP_ABORTED;
}
