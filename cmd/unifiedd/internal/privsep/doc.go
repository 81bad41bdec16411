// Package privsep gives the daemon the capabilities that it needs, and no others.
//
// A running program with C in it cannot change the capabilities of all its threads. But a program
// inherits the capabilities of the thread that starts it. So a process with too many rights becomes
// the parent of the daemon. It makes what takes privilege: directories and huge pages. It reduces
// the rights of one thread (bounding set, capabilities, securebits, no_new_privs). That thread runs
// the same program again, as the configured user. There, [Start] checks every thread, and refuses
// to continue if one has a right that the daemon must not keep.
//
// The parent process stays. It passes signals on and exits with the daemon's status. When the daemon has
// ended, for whatever reason, the parent process cleans up what the daemon may not. It removes the daemon's
// socket, its rules in cards and its programs in libxdp's dispatchers, and gives the huge pages back. If
// the parent process is killed, the daemon gets SIGTERM, and huge pages that were added stay reserved.
//
// A process without surplus rights needs no parent process, for example a systemd service with
// User= and AmbientCapabilities=. Otherwise systemd sees the parent process as the main process:
// set NotifyAccess=all and KillMode=mixed.
//
// An environment variable tells a daemon that a parent process has started it, so that it does not
// start another. No right depends on it.
//
// Threads: call Start once, first, from any goroutine. Needs Linux 5.9 (CAP_BPF). capabilities(7)
// has the rules behind all this.
package privsep
