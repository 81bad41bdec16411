// Package interop runs programs on the kernel's Soft-RoCE against ours over roce. A lab guest,
// whose card is the other end of a tap interface in a namespace, runs ibv_rc_pingpong, its
// relatives and rping, unmodified. unified-rdma-test runs in the namespace.
// Each program is once the client and once the server. Afterwards the device's counters show
// whether a packet was out of sequence or requested twice.
//
// It has tests only: go test ./selftests/interop runs two programs on the default kernel, and make
// test-roce-guest all of them. docs/background/testing.md describes the guest.
package interop
