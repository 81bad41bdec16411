package card

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Why a card's interrupts cannot be set.
var (
	errNoBus        = errors.New("the interface has no interrupts of its own")
	errNoInterrupts = errors.New("its card has no message-signalled interrupts, which alone belong to one card")
)

// affinityFile is the file with the processors of an interrupt.
func affinityFile(irq int) string { return fmt.Sprintf("/proc/irq/%d/smp_affinity_list", irq) }

// interrupts returns the numbers of the card's interrupts that a driver handles, in ascending order, which is that of
// its vectors.
func (c *Card) interrupts() (all []int, err error) {
	if c.bus == "" {
		return nil, errNoBus
	}
	device := filepath.Join("/sys/bus/pci/devices", c.bus)
	if _, err := os.Stat(device); err != nil {
		return nil, errNoBus
	}
	list, err := os.ReadDir(filepath.Join(device, "msi_irqs"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	for _, entry := range list {
		if irq, err := strconv.Atoi(entry.Name()); err == nil && handled(irq) {
			all = append(all, irq)
		}
	}
	if len(all) == 0 {
		return nil, errNoInterrupts
	}
	slices.Sort(all)
	return all, nil
}

// handled reports whether an interrupt has a handler, for which the kernel makes a directory.
func handled(irq int) bool {
	list, err := os.ReadDir(fmt.Sprintf("/proc/irq/%d", irq))
	return err == nil && slices.ContainsFunc(list, os.DirEntry.IsDir)
}

// readAffinity returns the processors of the interrupts: one list if all have the same one, and otherwise one for each.
func (c *Card) readAffinity() (string, error) {
	all, err := c.interrupts()
	if err != nil {
		return "", err
	}
	var lists []string
	for _, irq := range all {
		text, err := os.ReadFile(affinityFile(irq))
		if err != nil {
			return "", err
		}
		lists = append(lists, strings.TrimSpace(string(text)))
	}
	if len(slices.Compact(slices.Clone(lists))) == 1 {
		return lists[0], nil
	}
	return strings.Join(lists, " "), nil
}

// writeAffinity sets the processors of the interrupts.
func (c *Card) writeAffinity(value string) error {
	all, err := c.interrupts()
	if err != nil {
		return err
	}
	lists := strings.Fields(value)
	if len(lists) == 1 {
		lists = slices.Repeat(lists, len(all))
	}
	if len(lists) != len(all) {
		return fmt.Errorf("the card has %d interrupts, and there are lists for %d", len(all), len(lists))
	}
	for i, irq := range all {
		f, err := os.OpenFile(affinityFile(irq), os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		_, err = f.WriteString(lists[i])
		if err = errors.Join(err, f.Close()); err != nil {
			return fmt.Errorf("%w (the kernel keeps some interrupts where it has put them, and some containers may not move any)", err)
		}
	}
	return nil
}
