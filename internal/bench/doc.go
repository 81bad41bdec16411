// Package bench compares two programs that do the same work, on a machine that is
// never quiet.
//
// Absolute numbers of one run say little: the next minute the machine is busier.
// So the two programs run in turn, in pairs of short runs close together in
// time (Alternate), each pair gives one ratio, and an Estimate is made of the
// ratios alone: whatever slows both programs of a pair falls out. The estimate
// has bounds, and a bar is met only when the bound that speaks against us meets
// it.
//
// Run starts one program pinned to a CPU and returns what the kernel charged it.
// Comparison holds the pairs of one case, Report all cases of a benchmark;
// a report becomes a table for people, JSON for programs and an SVG plot.
//
// Nothing here is safe for concurrent use, and nothing needs to be.
package bench
