// Package archive gets the parts of the lab guest from Debian's archive: kernels of several lines,
// and an emulator new enough to have the cards.
//
// It installs nothing. apt runs with its own lists, sources and download directory, which are
// removed afterwards. The machine's apt provides the address of the archive and does not change.
// dpkg -x unpacks the packages into a Store, a cache directory outside every checkout, and they
// stay there. If the store has everything, no network is needed. apt checks signatures against
// Debian's own keyring.
//
// Several processes at a time may use a Store. Each thing in it appears whole, by a rename, or not
// at all. Two goroutines must not call functions on the same Store at once.
package archive
