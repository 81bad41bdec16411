// Package bugreport collects the facts about a daemon and its machine that a bug report needs, in
// one archive.
//
// [Write] runs a list of collectors, one after the other. Each makes one text file, within a limit of
// time and size. A collector that fails does not end the report: the file contents.txt says what is
// missing and why. So the report of a daemon that is down, or hangs, has everything else.
//
// A report has no secrets, by three rules. The first is in the collectors: they read no key file, and of
// the configuration and the environment they keep the values that a list of names permits. The second
// is [secrets]: the report reads what is secret (keys that the configuration names, values of the
// environment and of the configuration that are not on the lists) and replaces it wherever it occurs
// in a collected file. The third is the form: private keys, passwords in URLs and the like are
// replaced even if nobody named them.
//
// With [Options].Redact, each address has a number that replaces it in all files (redact.go).
//
// Threads: Write uses the calling goroutine. It changes nothing on the machine.
package bugreport
