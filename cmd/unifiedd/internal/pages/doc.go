// Package pages reserves huge pages for a process that may be killed.
//
// A reservation outlives the process that made it: pages that were added and are not
// given back are lost to the machine until somebody writes the kernel's counter. So
// each [Held] is a file under /run, locked by its process for as long as that lives,
// which says what is about to be added before it is. Whoever reserves next gives back
// what the files of dead processes say, and removes them.
//
// Only root can change a reservation, and only root can read or write these files.
// Any function may be called from any goroutine; a Held belongs to one.
package pages
