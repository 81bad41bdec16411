// Package client connects a program to the flows of unifiedd over RDMA. It appends to a
// log, receives what a flow sends, and reads blocks. docs/reference/protocol.md has the wire formats.
//
// A [Client] has its own region, registered with one RDMA device, and one thread. An
// [Appender] sends messages to a log or relay, a [Sink] receives the messages of flows that
// send, and [Blocks] reads what a flow serves:
//
//	c, err := client.Open(client.Config{Device: "roce:eth1"})
//	a, err := c.Append(ctx, client.AppendConfig{Address: "10.0.0.1:7471", Flow: "wal"})
//	number, err := a.Send(ctx, record)
//	receipt, err := a.Wait(ctx, number) // acknowledged, as durably as the flow is configured to
//
// A program may name a flow as NAME/FLOW, and a state as NAME/STATE, instead of its address: [Config.Names] says where
// that is, as an engine such as package flows/cluster/etcd tells it.
//
// Rights. A device of libibverbs takes the right to open it, and CAP_IPC_LOCK or a high enough limit of locked memory
// (ulimit -l). RoCE in software takes CAP_NET_RAW, CAP_NET_ADMIN, CAP_BPF, CAP_PERFMON and CAP_IPC_LOCK: run the program as
// root, or give its file these capabilities by setcap. The error of [Open] names those that are missing.
//
// Copies. Send copies a message into the region once. A program reads the messages of a Sink
// where they arrived. Packages stream and blocks, which this package uses, need no copy.
//
// Threads. Any goroutine may call all methods. The thread polls while messages move. When nothing has happened for 0.3 ms
// it waits for events, and costs nothing then.
package client
