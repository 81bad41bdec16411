// Package capfile finds the packets in capture files of any program: pcapng, and pcap with times in micro- or nanoseconds, with
// the longer headers of patched libpcaps ([Probe]), and of Ixia; each in either byte order.
//
// A [Parser] reads nothing itself. It says which bytes of the file it wants next ([Parser.Want]), is given them, and says
// where a packet lies; so the packet's own bytes are looked at by nobody, and may be sent from where a disk put them. What a
// file says is not trusted: each length is held against the file and against the other lengths before it is used, and what
// does not fit is an [Error] that says where. A Parser neither allocates nor locks for a packet; it belongs to one goroutine.
//
// Package pcapng is for unifiedd's own captures, of which it knows more: whether they are whole, and how to mend them.
//
// Sources: draft-ietf-opsawg-pcap and draft-ietf-opsawg-pcapng; libpcap's sf-pcap.c and sf-pcapng.c for what is allowed
// beyond.
package capfile
