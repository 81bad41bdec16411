// Package capfile finds the packets in capture files of any program: pcapng, and pcap with times
// in micro- or nanoseconds, also with the longer headers of patched libpcaps ([Probe]) and of
// Ixia, each in either byte order.
//
// A [Parser] reads nothing itself. [Parser.Want] says which bytes of the file it needs next. The
// caller gives them, and the Parser says where a packet is. So it never sees the bytes of packets,
// which may be sent from where a disk wrote them. The file is not trusted: each length is checked
// against the file and against other lengths before use, and a mistake is an [Error] with its
// place. A Parser neither allocates nor locks per packet. It belongs to one goroutine.
//
// Package pcapng is for unifiedd's own captures, which it can also check and recover.
//
// Sources: draft-ietf-opsawg-pcap and draft-ietf-opsawg-pcapng; libpcap's sf-pcap.c and
// sf-pcapng.c for what is accepted beyond them.
package capfile
