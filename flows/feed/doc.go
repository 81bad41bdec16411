// Package feed puts sequenced messages in order that arrive on several lines, each of which may lose, repeat or delay
// packets.
//
// [Parse] reads packets of MoldUDP64 (Nasdaq, MoldUDP64 Protocol Specification 1.00). With a [Counter], packets are plain
// and have a number. An [Arbiter] takes the packets of all lines: the first copy of each message wins, and
// [Arbiter.Next] returns messages once and in order. Packets behind a gap are held. A gap that no line fills in time is
// asked for at a retransmission server ([Arbiter.Tick]), and declared when that does not help either: then its messages
// are counted as lost, and the messages behind it follow. A restart of the sender is noticed by what its lines
// do ([Arbiter.At]).
//
// Threads: one thread calls the methods that change an Arbiter; any goroutine may call Stats. Nothing allocates after
// New. Packets may have any bytes: a packet that contradicts itself is counted with its reason and gives no message.
package feed
