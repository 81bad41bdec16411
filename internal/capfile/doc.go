// Package capfile finds the packets in capture files of any program: pcapng, and pcap with times in
// micro- or nanoseconds, also with the longer headers of patched libpcaps ([Probe]) and of Ixia,
// each in either byte order.
//
// A [Parser] does no I/O. [Parser.Want] says which bytes of the file it needs next. The caller
// passes them to the Parser, which reports where a packet is. So the Parser never sees the bytes of
// packets, and the caller can send them from the memory that a disk wrote. The file is not trusted:
// each length is checked against the file and against other lengths before use, and a mistake is an
// [Error] with its place. A Parser neither allocates nor locks per packet. It belongs to one
// goroutine.
//
// Package pcapng is for unifiedd's own captures, which it can also check and recover.
//
// Sources: draft-ietf-opsawg-pcap and draft-ietf-opsawg-pcapng; libpcap's sf-pcap.c and sf-pcapng.c
// for additional forms that the Parser accepts.
package capfile
