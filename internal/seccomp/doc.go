// Package seccomp limits a process to the system calls unifiedd makes.
//
// calls is the only list of them, and [Families] the only list of address families. The systemd
// unit repeats both; a test compares them. [Apply] installs the list in the kernel for all threads
// of the process, and checks that each thread has it. Programs started later inherit it.
//
// A call outside the list fails with EPERM, and the kernel logs it (type=1326 in the audit log or
// in dmesg). With UNIFIEDD_SYSTEM_CALLS=trap in the environment such a call ends the process with a
// traceback instead. Tests set it, so that a call missing from the list fails a test.
//
// The filter forbids new namespaces: clone(2) with their flags fails. clone3(2) passes its flags in
// memory, which a filter cannot read. So it fails with ENOSYS, and the C library then uses
// clone(2). It tries clone3 for each thread, so the kernel does not log this refusal.
//
// Needs Linux 4.14 (SECCOMP_FILTER_FLAG_LOG). Any goroutine may call Apply.
package seccomp
