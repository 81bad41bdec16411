// unified-flow-test is the remote end of unifiedd's flows over RDMA. It appends to a log or a relay,
// receives messages from a flow, and reads blocks, and it verifies every byte. It can also be many
// clients of a log at once, to load it.
//
//	unified-flow-test append  -device roce:eth0 -to 10.0.0.1:7471 -size 1024 -count 100000
//	unified-flow-test load    -device roce:eth0 -to 10.0.0.1:7471 -size 64 -clients 64 -for 10s
//	unified-flow-test receive -device roce:eth0 -listen :7481 -count 100000
//	unified-flow-test read    -device roce:eth0 -from 10.0.0.1:7472 -size 65536 -count 1000
//	unified-flow-test make    -file disk.img -size 67108864
//	unified-flow-test log     -file /var/lib/unifiedd/wal -count 100000
//
// The contents of a message follow from -seed and its number, so each side knows what the other
// must have sent. The exit status is 0 for success, 1 for work that failed, and 2 for a wrong
// command line.
package main
