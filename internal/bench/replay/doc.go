// Package replay compares unifiedd replay with tcpreplay.
//
// Both send the same capture at top speed, over and over, by the same end of a veth pair, on one CPU and in turn; nobody listens at
// the other end, whose kernel drops what it does not know in the sender's time. tcpreplay has the capture in memory before it
// begins (--preload-pcap) and sends by packet sockets; ours reads it from the disk each time. Compared are packets a second, by each program's
// own account, and the processor time of the whole process for a packet, its start included.
package replay
