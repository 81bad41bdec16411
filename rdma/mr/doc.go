// Package mr grants a peer access to parts of a registered region, and revokes it.
//
// A [Cache] keeps what was granted, so that granting the same part again costs
// nothing. A grant is a memory window of type 2 where the device has them, and a
// registration otherwise.
package mr
