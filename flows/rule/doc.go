// Package rule makes orders of messages of a feed: it matches a message's bytes, and fills fields of an order.
//
// A [Set] has the rules of one flow, in their order. [Set.Match] finds the first rule whose conditions a message meets.
// A condition that is about bytes behind the end of the message is not met, and the message counts as short. [Set.Fill]
// writes the order: bytes that are always the same, copies of bytes of the message, and a counter, which counts the
// orders of all rules that have left ([Set.Left]).
//
// Nothing here allocates, locks or calls an interface for a message. Messages may have any bytes. One thread uses a Set;
// any goroutine may call Stats.
package rule
