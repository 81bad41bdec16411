// Package hugetlb counts the kernel's huge pages, and changes how many there are.
//
// The kernel's counter of reserved pages is one number for everybody. Whoever reads it,
// adds and writes it back loses the change of another in between, and pages that one
// process added and has not mapped yet look free to all others. So every change happens
// under [Lock], a lock of the whole machine, and whoever adds pages for itself keeps the
// lock until it has mapped them. The kernel releases the lock of a process that dies.
//
// A reservation outlives the process that made it. [Held] therefore notes under /run what
// it is about to add; [Sweep] takes back what the processes of such notes left when they
// were killed.
//
// Only root can change a reservation, take the lock, and read or write the notes.
// See Documentation/admin-guide/mm/hugetlbpage.rst.
package hugetlb
