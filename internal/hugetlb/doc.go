// Package hugetlb counts the kernel's huge pages, and changes how many there are.
//
// All processes share the kernel's counter of reserved pages. A process that reads it, adds and
// writes it back overwrites a change that another process makes in between. Pages that one process
// added and has not mapped yet look free to all others. So every change happens under [Lock], a
// lock of the whole machine, and a process that adds pages for itself keeps the lock until it has
// mapped them. The kernel releases the lock of a process that dies.
//
// A reservation outlives the process that made it. [Held] therefore notes under /run what it is
// about to add. [Sweep] reads these notes and takes back the pages of killed processes.
//
// Only root can change a reservation, take the lock, and read or write the notes. See
// Documentation/admin-guide/mm/hugetlbpage.rst.
package hugetlb
