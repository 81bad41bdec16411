// Package mad is the messages of connection managers as they are on the wire: management datagrams (MADs) of class 7,
// which go between queue pairs 1 (IBTA specification, volume 1, 12.6, 13.4 and annex A11 for IP addresses).
//
//	MAD header  24  version, class, method, transaction, attribute: the kind of message
//	message    232  identifiers of both sides, what the kind has, and at the end private data of the programs
//
// It is pure computation and allocates nothing. What comes is bytes of anybody: [Message.Decode] says of what is no message why, as a number to
// count by, and of what is one nothing more than that the fields are where they belong. What they say is the receiver's to check.
//
// A Message may be used from one goroutine at a time.
package mad
