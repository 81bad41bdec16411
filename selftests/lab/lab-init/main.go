// Lab-init is the first process of a lab guest. It mounts the file systems that a system has, with
// the host's root directory read-only below a layer in memory. It loads the modules for the guest's
// devices, and then runs the commands that the host sends over a virtio-serial port, one at a time.
//
// It has no use outside a lab guest, and refuses to run unless it is the first process.
package main

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

func main() {
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "lab-init: this is the first process of a lab guest, and nothing for anywhere else")
		os.Exit(2)
	}
	fmt.Println("lab-init:", work())
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
}

// work serves the host until an error.
func work() error {
	setup, err := begin()
	if err != nil {
		return err
	}
	link, err := openLink()
	if err != nil {
		return err
	}
	defer link.Close()
	log, err := openLog()
	if err != nil {
		return link.problem(err)
	}
	if err := settle(setup); err != nil {
		return link.problem(err)
	}
	return serve(link, log)
}
