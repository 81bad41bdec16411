// Package tune measures flows on this machine with one setting after the other, and proposes those that are better.
//
// A [Subject] is a file, a block device or a network interface. Its settings have a default and some other values. For
// each other value the same flow runs with it and without it, in turn and in changing order, and [pairs.Pairs]
// estimates the ratios. A value is taken only if a bound of the estimate says that it is better: noise alone does not.
// At the end all values that were taken are compared with the defaults together, and dropped if they are not better.
//
// With an [Outside] settings of the interface's card are tried in the same way: runs change the card. [Tune] leaves those
// that helped, and restores the others on every way out of it. A [Guard] is a second process that does so if this one is
// killed.
//
// The flows are the real ones: each run opens a daemon in this process, and closes it. [Tune] blocks, and must not run
// beside other work of the process, whose processor time it would measure.
package tune
