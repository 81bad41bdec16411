// Package kit gets the parts of lab guests, and boots them: for cmd lab, and for tests on this machine
// that use a guest as the remote end.
//
//	k, err := kit.Open(ctx, line, os.Stderr)
//	g, err := k.Boot(ctx, vm.Config{Tap: tap.File, TapMTU: 4200})
//
// A Kit is not changed by booting, and may be used by several goroutines as long as each guest
// is used by one.
package kit
