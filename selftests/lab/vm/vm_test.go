package vm

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/selftests/lab/archive"
)

// TestConsole: the console keeps the last lines, without escapes for terminals.
func TestConsole(t *testing.T) {
	var c console
	for n := range 4000 {
		fmt.Fprintf(&c, "\x1bc\x1b[?7l\x1b[2Jline %d of the console\r\n", n)
	}
	tail := strings.Split(c.tail(), "\n")
	if len(tail) != shownLines || tail[len(tail)-1] != "line 3999 of the console" || len(c.text) > consoleBytes {
		t.Errorf("%d lines, %d bytes, the last %q", len(tail), len(c.text), tail[len(tail)-1])
	}
}

// TestStall: only a stall calls the function of whenStalled.
func TestStall(t *testing.T) {
	var c console
	stalls := 0
	c.whenStalled(func() { stalls++ })
	fmt.Fprintln(&c, "[    1.230718] mtrr: your CPUs had inconsistent MTRRdefType settings")
	if stalls != 0 {
		t.Error("an ordinary line is a stall")
	}
	fmt.Fprintln(&c, "[   24.213765] rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:")
	c.whenStalled(nil)
	fmt.Fprintln(&c, "[   45.213765] rcu: INFO: rcu_preempt self-detected stall on CPU")
	if stalls != 1 {
		t.Errorf("%d stalls were told of, not 1", stalls)
	}
}

// TestArguments: the emulator's arguments name no file except kernel and firmware, no network of
// the host, and, with two nodes, the node of each card.
func TestArguments(t *testing.T) {
	c := Config{Kernel: archive.Kernel{Image: "/k"}, Nodes: 2}
	args := c.arguments(inherited{3, 4, 5, 6, 7, 8, 9, 0})
	all := strings.Join(args, " ")
	for _, part := range []string{
		"-initrd /dev/fd/3", "fd=4", "file=/dev/fd/5", "file=/dev/fd/6", "-nodefaults", "readonly=on",
		"pcie-root-port,id=igb0-port,bus=node0,", "pcie-root-port,id=igb1-port,bus=node1,", "node,nodeid=1,cpus=1,memdev=memory1",
	} {
		if !strings.Contains(all, part) {
			t.Errorf("the emulator is not told %s", part)
		}
	}
	for _, part := range []string{"user", "tap", "listen", "link"} {
		if strings.Contains(all, ","+part) || slices.Contains(args, part) {
			t.Errorf("the emulator is told of %s", part)
		}
	}
	c.Tap, c.TapMTU = os.Stdin, 4200
	if all := strings.Join(c.arguments(inherited{tap: 9}), " "); !strings.Contains(all, "tap,id=wire-host,fd=9") || !strings.Contains(all, "host_mtu=4200") {
		t.Errorf("the emulator is not told of the tap interface: %s", all)
	}
	if one := strings.Join(Config{Nodes: 1}.arguments(inherited{}), " "); strings.Contains(one, "numa") {
		t.Errorf("one node is two: %s", one)
	}
}
