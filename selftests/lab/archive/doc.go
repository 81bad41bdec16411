// Package archive brings what the lab guest is made of from Debian's archive:
// kernels of several lines, and an emulator new enough to have the cards.
//
// Nothing is installed. apt runs on lists, sources and a download directory of
// its own, which are gone afterwards; the machine's apt gives the address of the
// archive and is left as it is. What was fetched is unpacked with dpkg -x into a
// Store, a cache directory outside every checkout, and stays there until it is
// asked for again: with everything in the store, no network is needed. Signatures
// are checked against Debian's own keyring.
//
// A Store may be used by several processes at a time. Each thing in it appears
// whole, by a rename, or not at all. No function may be called by two goroutines
// at once on the same Store.
package archive
