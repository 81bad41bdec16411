package daemon

import "os/exec"

// Place is where a process runs: a testenv.Namespace or End, or Here.
type Place interface {
	// Command is exec.Command, with the program in this place.
	Command(name string, args ...string) *exec.Cmd
}

// Here is the namespace of the test itself.
type Here struct{}

// Command is exec.Command.
func (Here) Command(name string, args ...string) *exec.Cmd { return exec.Command(name, args...) }
