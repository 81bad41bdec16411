// Package config reads the daemon's YAML configuration.
//
// The YAML tree keeps the line and column of every node. The tree becomes a typed [Config] with
// all defaults, and the Config is checked as a whole. Nothing stops at the first mistake:
// [*Errors] has all of them, each with the place, the line, a caret and, for a misspelt word, a
// suggestion.
//
// The ends of a [Flow] name an interface, an RDMA device, a file or a device. Its [Kind] follows
// from them. Each kind has its defaults. A setting that has no meaning for the kind is a mistake
// and is not ignored.
//
// The format is strict. Unknown and repeated keys are refused, a file holds one document, and a
// scalar means exactly what is written: "interface: no" names an interface called no. Anchors,
// aliases and merge keys (<<) may share settings between flows. Their expansion is bounded, and so
// is the size of a file: a hostile file costs neither time nor memory.
//
// [Load] and [Parse] return a Config that passed every check, or an error and no Config. A program
// may also build a Config: [Default], [NewFlowOf], [Config.Complete], [Config.Validate].
//
// This package reads text only. Whether an interface, a CPU or a device exists is found when it is
// opened. The Pos of a [Worker] and a [Flow] names the place in the file for such errors.
//
// Threads: the functions keep no state and may be called from any goroutine. A Config is plain
// data that its receiver owns.
package config
