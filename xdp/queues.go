package xdp

import "fmt"

// Queues is how many receive queues an interface has, by its name in the network namespace of the calling thread: as many
// as Open binds where no queues are listed. Errors match ErrInterfaceGone.
func Queues(name string) (int, error) {
	d, err := findDevice(name)
	if err != nil {
		return 0, fmt.Errorf("count the queues of %s: %w", name, err)
	}
	return int(d.queues), d.close()
}
