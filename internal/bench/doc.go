// Package bench compares two programs that do the same work, on a machine with other load.
//
// Absolute numbers of one run mean little: a minute later the machine is busier. So the programs
// run alternately, in pairs of short runs close together in time (Round). Each pair gives one
// ratio, and an Estimate is computed from the ratios alone: what slows both programs of a pair
// cancels out. The estimate has bounds, and a bar is met only if the unfavourable bound meets it.
//
// Run starts one program on a CPU and returns what the kernel charged it. A Comparison has the
// pairs of one case, a Report all cases of a benchmark. A report becomes a table for people, JSON
// for programs and an SVG plot.
//
// Nothing here is safe for concurrent use.
package bench
