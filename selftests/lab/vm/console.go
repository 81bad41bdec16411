package vm

import (
	"regexp"
	"strings"
	"sync"
)

// consoleBytes is how much of the console's end the program keeps.
const consoleBytes = 64 << 10

// shownLines is how many lines of it an error shows.
const shownLines = 60

// console keeps the end of the output of the guest's console and the emulator.
type console struct {
	mu      sync.Mutex
	text    []byte
	onStall func() // called when the kernel reports a stall; may be nil
}

// stall matches the report of a kernel whose processors make no progress: kernel/rcu/tree_stall.h.
var stall = regexp.MustCompile(`detected stalls|self-detected stall`)

// whenStalled sets the function to call when the kernel reports a stall; nil for none.
func (c *console) whenStalled(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.onStall = f
}

func (c *console) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.text = append(c.text, b...)
	if c.onStall != nil && stall.Match(b) {
		c.onStall()
	}
	if over := len(c.text) - consoleBytes; over > 0 {
		c.text = append(c.text[:0], c.text[over:]...)
	}
	return len(b), nil
}

// escapes are the terminal commands that firmware sends.
var escapes = regexp.MustCompile(`\x1b(\[[0-9;?=]*[A-Za-z]|c)|\r`)

func (c *console) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return escapes.ReplaceAllString(string(c.text), "")
}

// tail returns the last lines.
func (c *console) tail() string {
	lines := strings.Split(strings.TrimSpace(c.String()), "\n")
	return strings.Join(lines[max(0, len(lines)-shownLines):], "\n")
}

// firstLines returns the first lines of a text.
func firstLines(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[:min(len(lines), shownLines)], "\n")
}
