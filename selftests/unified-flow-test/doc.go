// unified-flow-test is the other end of unifiedd's flows over RDMA: it appends to a log or a relay, takes what a flow
// sends, and reads blocks, and it verifies every byte; and it is many clients of a log at once, to see how much it takes.
//
//	unified-flow-test append  -device roce:eth0 -to 10.0.0.1:7471 -size 1024 -count 100000
//	unified-flow-test load    -device roce:eth0 -to 10.0.0.1:7471 -size 64 -clients 64 -for 10s
//	unified-flow-test receive -device roce:eth0 -listen :7481 -count 100000
//	unified-flow-test read    -device roce:eth0 -from 10.0.0.1:7472 -size 65536 -count 1000
//	unified-flow-test make    -file disk.img -size 67108864
//	unified-flow-test log     -file /var/lib/unifiedd/wal -count 100000
//
// Messages are of words that follow from -seed and the message's number, so either side knows what the other must
// have sent. Exit status 0 is success, 1 work that failed, and 2 a mistake on the command line.
package main
