// Package mr grants a peer access to parts of a registered region, and revokes it.
//
// A [Cache] keeps released grants, so that it costs nothing to grant the same part again. A grant
// is a memory window of type 2 if the device has them, and a registration otherwise.
package mr
