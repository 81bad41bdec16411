// Package reload tests reloads of a running daemon: flows are added, changed and removed again and
// again, while others carry traffic and lose nothing.
package reload
