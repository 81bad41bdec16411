// Package vm boots the lab guest in an emulator and runs commands in it.
//
// A Guest is one emulator process and the channel to the first process in it,
// which runs one command at a time. Nothing of a guest is in a file system of the
// host: its initramfs and its disks are files without names, so that they are gone
// with the emulator, and the emulator dies with the thread that started it, however
// that ends.
//
// What can go wrong is told apart by errors.Is: ErrStart (the guest never came up),
// ErrKernel (its kernel died), ErrHung (it no longer answers). A command that fails
// is no error; its Result says so, and has what the kernel complained of meanwhile.
//
// One goroutine uses a Guest at a time; Close may be called by another.
package vm
