// Package card reads and changes the settings of a network card that no configuration has: its queues, receive ring and
// coalescing (ethtool), and which processors its interrupts go to.
//
// Settings have the words that ethtool takes, such as "rx 1024" of [Rings]. [Card.Probe] reads those that a card has and
// says of the others why it has them not. It also sets each to the value that it has, which changes nothing, and fails
// without the rights to do that. [Card.Set] changes those that differ. Changing one may change another, as the number
// of queues does the interrupts, so it goes through them in an order in which that is undone, and reads all again.
//
// A driver may take the link down for a change: [Card.Settle] waits until it is back. Nothing is remembered here. Who
// changes a card keeps what Probe has read, and sets it again.
//
// A Card is for one goroutine, in one network namespace. The package needs Linux 5.7, which has these requests in
// netlink.
package card
