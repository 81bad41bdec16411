// Package reload tests what a running daemon does with another configuration: flows come,
// change and go, again and again, while others carry traffic and lose nothing of it.
package reload
