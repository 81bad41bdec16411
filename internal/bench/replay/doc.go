// Package replay compares unifiedd replay with tcpreplay.
//
// Both send the same capture at top speed, again and again, from the same end of a veth pair, on one CPU, one
// after the other. No program receives at the other end. Its kernel drops unknown packets in the sender's
// time. tcpreplay loads the capture into memory first (--preload-pcap) and sends with packet sockets. Ours
// reads the capture from the disk each time. The comparison has the packets per second that each program
// reports, and the processor time of the whole process per packet, including its start.
package replay
