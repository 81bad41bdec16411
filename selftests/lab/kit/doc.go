// Package kit gets what lab guests are made of, and boots them: for cmd lab, and for tests on this
// machine that have a guest as the other side.
//
//	k, err := kit.Open(ctx, line, os.Stderr)
//	g, err := k.Boot(ctx, vm.Config{Tap: tap.File, TapMTU: 4200})
//
// A Kit is not changed by booting, and may be used by several goroutines as long as each guest
// is used by one.
package kit
