// Package bench compares unifiedd with other programs that do the same work. Each package below it has one or more
// comparisons, tests named TestAgainst…, whose figures docs/background/benchmarks.md shows. They are a module of their own and run on
// demand only (make bench), as the machine must do nothing else meanwhile.
//
// A Contest runs its programs in turn, round after round, and package internal/pairs computes ratios with bounds from the
// pairs. A Report becomes a table for people, and JSON with all pairs. A missed bar fails no test, since on a busy machine
// the cause may be other load.
//
// Nothing here is safe for concurrent use.
package bench
