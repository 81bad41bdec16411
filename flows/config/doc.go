// Package config reads the daemon's YAML configuration.
//
// The idea: a configuration is read like a compiler reads a program. The text
// becomes a tree whose every node knows its line and column, the tree becomes a
// typed [Config] with all defaults filled in, and the Config is then checked as
// a whole. Nothing stops at the first mistake: all of them come back in one
// [*Errors], each with the place, the line, a caret and, for a misspelt word,
// what was probably meant.
//
// A [Flow] has one of five kinds ([Kind]), which follows from what its ends name:
// an interface, an RDMA device, a file or device. Each kind has its defaults, and a
// setting which belongs to other kinds is a mistake, not ignored.
//
// The format is strict. Unknown and repeated keys are refused, a file holds one
// document, and a scalar is taken for exactly what is written: "interface: no"
// names an interface called no. Anchors, aliases and merge keys (<<) may be used
// to share settings between flows; what they expand to is bounded, as is the size
// of the file, so that a hostile file costs neither time nor memory.
//
// [Load] and [Parse] return either a Config that passed every check, or an
// error and no Config, so a bad file changes nothing. A Config may also be
// built by a program: [Default], [NewFlowOf], [Config.Complete], [Config.Validate].
//
// Only the text is looked at. Whether an interface, a CPU or a device exists is
// found out by those who open it; the Pos of a [Worker] and a [Flow] lets them
// name the place in the file.
//
// Threads: the functions keep no state and may be called from any goroutine. A
// Config is plain data owned by its receiver.
package config
