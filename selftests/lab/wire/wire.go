// Package wire has the messages between the lab's host and guest, JSON over a virtio-serial port,
// and the setup that the guest reads from its initramfs.
//
// The guest sends Ready once, or Problem. Then the host sends one Run after the other. For each the
// guest sends Output while the command runs, and Exit at the end. Ready and Exit contain the
// kernel's log since the message before. To end a guest, the host ends the emulator.
package wire

import "time"

const (
	// Port is the name of the virtio-serial port.
	Port = "unifiedd.lab"
	// HostTag is the mount tag of the host's root directory.
	HostTag = "host"
	// SetupFile is the path of the Setup in the initramfs, as JSON.
	SetupFile = "/setup.json"
	// ModulesDir is the path of the modules in the initramfs.
	ModulesDir = "/modules"
	// ScratchSerial is the serial number of the disk for temporary files.
	ScratchSerial = "scratch"
	// RecordedSerial is the serial number of the disk whose writes are recorded.
	RecordedSerial = "recorded"
)

// Setup has the facts that the guest needs before it can communicate.
type Setup struct {
	// Modules are the files in ModulesDir, in the order of loading.
	Modules []string
	// KernelModules is the directory on the host that is /lib/modules/$(uname -r).
	KernelModules string
	// Shares are directories of the host that the guest must see, even where it has its own
	// directory, such as below /tmp.
	Shares []string
	// Cards are the network interfaces and the names they get.
	Cards []Card
	// Unbound are addresses of PCI devices that no driver may bind.
	Unbound []string
	// Hostname is the guest's host name.
	Hostname string
}

// Card is a network interface of the guest.
type Card struct {
	MAC  string
	Name string
	// Address is the address of the interface, "10.78.0.1/24", or empty. With an address, the
	// guest sets the interface up.
	Address string
}

// Message has one field set; the others are empty.
type Message struct {
	Ready   *Ready   `json:",omitempty"`
	Problem string   `json:",omitempty"`
	Run     *Command `json:",omitempty"`
	Output  []byte   `json:",omitempty"`
	Exit    *Exit    `json:",omitempty"`
}

// Ready means that the guest waits for commands.
type Ready struct {
	// Version is the output of uname -r.
	Version string
	Log     []LogLine
}

// Command is a program to run to its end.
type Command struct {
	Args []string
	Dir  string
	// Env is added to the guest's own.
	Env []string
	// Limit is how long it may take. The guest then sends SIGQUIT to get its stacks, and kills
	// it.
	Limit time.Duration
}

// Exit means that the command and every process it left have ended.
type Exit struct {
	// Code is the exit status, or 128 and the number of the signal.
	Code int
	// TimedOut means that the command took longer than its limit.
	TimedOut bool
	Log      []LogLine
}

// LogLine is a record of the kernel's log.
type LogLine struct {
	// Level is 0 (the machine is going down) to 7 (for debugging).
	Level int
	Text  string
}
