// Package interop has programs on the kernel's Soft-RoCE talk with ours over roce on this machine: a
// lab guest, whose card is the other end of a tap interface in a namespace, runs ibv_rc_pingpong and its kind and
// the programs of perftest, unmodified, and unified-rdma-test runs in the namespace, each of both
// once as client and once as server. The device's own counters say afterwards whether anything was out of
// sequence, or asked for twice.
//
// All of it is tests: go test ./selftests/interop runs two programs on the default kernel, and make
// test-roce-guest all of them. docs/lab.md says what such a guest is.
package interop
