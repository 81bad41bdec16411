// Package vm boots the lab guest in an emulator and runs commands in it.
//
// A Guest is one emulator process and the channel to the first process in it. That process runs one
// command at a time. No part of a guest is in a file system of the host: its initramfs and its
// disks are files without names, which disappear with the emulator. The kernel kills the emulator
// when the thread that started it ends, in every case.
//
// errors.Is distinguishes the failures: ErrStart (the guest did not start), ErrKernel (its kernel
// died), ErrHung (it no longer answers), ErrLost (the emulator ended). A failed command is not an
// error: its Result has the status, and the kernel's complaints while the command ran.
//
// One goroutine uses a Guest at a time. Another one may call Close.
package vm
