// Lab-init is the first process of a lab guest. It mounts what a system has
// mounted, with the host's root directory read-only below a layer of its own,
// loads the modules for the guest's devices, and then runs what the host asks
// for over a virtio-serial port, one command at a time.
//
// It is of no use outside a lab guest, and refuses to run as another process than
// the first.
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

// work serves the host until something goes wrong.
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
