// Package mad encodes and decodes the messages of connection managers: management datagrams (MADs)
// of class 7 between queue pairs 1 (IBTA specification, volume 1, 12.6, 13.4, and annex A11 for IP
// addresses).
//
//	MAD header  24  version, class, method, transaction, attribute: the kind of message
//	message    232  identifiers of both sides, the fields of the kind, and private data of the programs at the end
//
// It computes only, and allocates nothing. Received bytes are untrusted. [Message.Decode] returns
// the reason for an invalid message as a small number to count by. Of a valid one it checks that
// the fields are in place; the receiver checks their values.
//
// One goroutine at a time may use a Message.
package mad
