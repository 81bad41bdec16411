// Package starter gives the daemon the rights it needs, and no others.
//
// The idea: a program with C in it cannot change the capabilities of all of its
// threads once it runs, but a program inherits those of the one thread that starts
// it. So a process with too many rights becomes a starter. It makes what takes
// privilege (directories, huge pages), reduces one thread (bounding set,
// capabilities, securebits, no_new_privs) and has it run the same program again, as
// the configured user. There, [Start] looks at every thread and refuses to go on
// with any right beyond those to be kept.
//
// The starter stays as the daemon's parent: it passes signals on, and when the
// daemon has ended, however it did, takes away what it left (its socket, rules in
// cards, programs in libxdp's dispatchers) and gives huge pages back, which the daemon may not. Its exit status is the daemon's. If
// the starter itself is killed, the daemon gets SIGTERM; pages it had reserved then
// stay reserved.
//
// A process that has no right too many, such as one of systemd with User= and
// AmbientCapabilities=, needs no starter and goes on as it is. With a starter,
// systemd sees the starter as the main process: let the unit say NotifyAccess=all
// and KillMode=mixed.
//
// The environment variable that tells a started daemon from a starter keeps it
// from starting another; no right hangs on it.
//
// Threads: Start is called once, first thing, from any goroutine. Needs Linux 5.9
// (CAP_BPF). See capabilities(7) for the rules behind all this.
package starter
