// Package reload tests reloads of a running daemon. It adds, changes and removes flows again and
// again, while other flows carry traffic and lose nothing.
package reload
