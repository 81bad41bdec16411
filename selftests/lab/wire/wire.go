// Package wire is what the lab's host and guest say to each other: JSON messages
// over a virtio-serial port, and the setup that the guest finds in its initramfs.
//
// The guest says Ready once, or Problem. Then the host sends one Run after the
// other, and for each the guest sends Output as it comes and at last Exit. The
// kernel's log travels with Ready and Exit: all that was logged since the message
// before. A guest is ended by ending the emulator.
package wire

import "time"

const (
	// Port is the name of the virtio-serial port.
	Port = "unifiedd.lab"
	// HostTag is the mount tag of the host's root directory.
	HostTag = "host"
	// SetupFile is where in the initramfs the Setup is, as JSON.
	SetupFile = "/setup.json"
	// ModulesDir is where in the initramfs the modules are.
	ModulesDir = "/modules"
	// ScratchSerial is the serial number of the disk for temporary files.
	ScratchSerial = "scratch"
	// RecordedSerial is the serial number of the disk whose writes are recorded.
	RecordedSerial = "recorded"
)

// Setup is what the guest must know before it can talk.
type Setup struct {
	// Modules are the files in ModulesDir, in the order in which they go in.
	Modules []string
	// KernelModules is the directory on the host that is /lib/modules/$(uname -r).
	KernelModules string
	// Shares are directories of the host to be seen in the guest even where it has
	// something of its own, such as below /tmp.
	Shares []string
	// Cards are the network interfaces and the names they get.
	Cards []Card
	// Unbound are addresses of PCI devices that no driver takes by itself.
	Unbound []string
	// Hostname is the guest's.
	Hostname string
}

// Card is a network interface of the guest.
type Card struct {
	MAC  string
	Name string
	// Address, if there is one, is put on the interface, which is then set up:
	// "10.78.0.1/24".
	Address string
}

// Message is one of its fields; the others are empty.
type Message struct {
	Ready   *Ready   `json:",omitempty"`
	Problem string   `json:",omitempty"`
	Run     *Command `json:",omitempty"`
	Output  []byte   `json:",omitempty"`
	Exit    *Exit    `json:",omitempty"`
}

// Ready says that the guest waits for commands.
type Ready struct {
	// Version is what uname -r says.
	Version string
	Log     []LogLine
}

// Command is a program to be run to its end.
type Command struct {
	Args []string
	Dir  string
	// Env is added to the guest's own.
	Env []string
	// Limit is how long it may take. It is then asked with SIGQUIT for its stacks,
	// and killed.
	Limit time.Duration
}

// Exit says that the command has ended, and everything it left running with it.
type Exit struct {
	// Code is the exit status, or 128 and the number of the signal.
	Code int
	// TimedOut says that the command took longer than its limit.
	TimedOut bool
	Log      []LogLine
}

// LogLine is a record of the kernel's log.
type LogLine struct {
	// Level is 0 (the machine is going down) to 7 (for debugging).
	Level int
	Text  string
}
