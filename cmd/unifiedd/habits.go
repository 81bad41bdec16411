package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/unifiedd/unifiedd/cmd/unifiedd/internal/privsep"
)

// addNumeric takes tcpdump's -n and -nn, which ask for what is so anyway.
func addNumeric(c *cobra.Command, n *int) {
	c.Flags().CountVarP(n, "numeric", "n", "accepted as tcpdump's is; addresses and ports never become names here")
	c.Flags().Lookup("numeric").NoOptDefVal = "+1"
}

// listInterfaces prints the interfaces there are, as tcpdump's -D does.
func listInterfaces(w io.Writer) error {
	all, err := net.Interfaces()
	if err != nil {
		return fmt.Errorf("list interfaces: %w", err)
	}
	for n, i := range all {
		var is []string
		for _, f := range []struct {
			flag net.Flags
			name string
		}{{net.FlagUp, "Up"}, {net.FlagRunning, "Running"}, {net.FlagLoopback, "Loopback"}} {
			if i.Flags&f.flag != 0 {
				is = append(is, f.name)
			}
		}
		if _, err := fmt.Fprintf(w, "%d.%s [%s]\n", n+1, i.Name, strings.Join(is, ", ")); err != nil {
			return err
		}
	}
	return nil
}

// noneIsAny refuses tcpdump's interface for all interfaces, unless there is one of that name.
func (f *captureFlags) noneIsAny() error {
	if !slices.Contains(f.ifaces, "any") {
		return nil
	}
	if _, err := net.InterfaceByName("any"); err == nil {
		return nil
	}
	return errors.New("-i any: packets are taken from the queues of interfaces that are named; give each with an -i of its own: -i eth0 -i eth1 (unifiedd capture -D lists them)")
}

// postrotate runs -z's command for each file that is complete.
type postrotate struct {
	command string
	errs    io.Writer
}

// afterwards is what happens with complete files.
func (f *rotateFlags) afterwards(errs io.Writer) *postrotate {
	return &postrotate{command: f.command, errs: errs}
}

// lowest is the priority of the command: the capture comes first.
const lowest = 19

// file begins the command for a file. The capture does not wait for it, not at its end either.
func (p *postrotate) file(path string) {
	if p.command == "" {
		return
	}
	cmd := exec.Command(p.command, path)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for the capture
	if err := privsep.StartBare(cmd); err != nil {
		fmt.Fprintf(p.errs, "-z %s %s: %v\n", p.command, path, err)
		return
	}
	_ = syscall.Setpriority(syscall.PRIO_PROCESS, cmd.Process.Pid, lowest)
	go func() {
		if err := cmd.Wait(); err != nil {
			fmt.Fprintf(p.errs, "-z %s %s: %v\n", p.command, path, err)
		}
	}()
}
