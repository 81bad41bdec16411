package card

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// Choice is a setting with its present value and others that may suit better.
type Choice struct {
	Setting Setting
	Now     string
	Others  []string
}

// Values that are tried, beside the smallest and largest of a card.
const shortRing = 512 // descriptors; fewer touch less memory

var delays = []uint32{25, 125} // microseconds of rx-usecs

// Choices returns what there is to try for settings that were probed, in the order in which they are set. cpus are the
// processors to which interrupts may go.
func (c *Card) Choices(now Settings, cpus []int) (all []Choice, err error) {
	for _, which := range order {
		value, is := now[which]
		if !is {
			continue
		}
		one := Choice{Setting: which, Now: value}
		if which == Affinity {
			for _, cpu := range cpus {
				one.Others = append(one.Others, fmt.Sprint(cpu))
			}
		} else if one.Others, err = c.others(which, runtime.NumCPU()); err != nil {
			return nil, fmt.Errorf("read %s of %s: %w", which, c.Name, err)
		}
		all = append(all, one.without())
	}
	return all, nil
}

// without leaves out the present value.
func (o Choice) without() Choice {
	var others []string
	for _, value := range o.Others {
		if value != o.Now {
			others = append(others, value)
		}
	}
	o.Others = others
	return o
}

// others returns the values to try for one of ethtool's settings.
func (c *Card) others(which Setting, cpus int) (all []string, err error) {
	g := groups[which]
	a, err := c.ask(g)
	if err != nil {
		return nil, err
	}
	if which == Coalescing {
		first := ""
		if _, adapts := g.params[0].of(a); adapts { // otherwise the driver overrides the time
			first = g.params[0].word + " off "
		}
		for _, n := range delays {
			all = append(all, first+g.params[1].word+" "+fmt.Sprint(n))
		}
		return all, nil
	}
	for _, p := range g.params {
		now, _ := p.of(a)
		most, _ := number(a[p.most])
		if now == 0 {
			continue
		}
		if which == Channels { // one queue costs least, and more than processors gain nothing
			return texts(p, now, 1, min(most, uint32(cpus))), nil
		}
		return texts(p, now, most, min(most, shortRing)), nil
	}
	return nil, nil
}

// texts returns the values that differ from the present one and from each other, in ethtool's words.
func texts(p param, now uint32, values ...uint32) (all []string) {
	seen := map[uint32]bool{0: true, now: true}
	for _, n := range values {
		if !seen[n] {
			seen[n] = true
			all = append(all, p.word+" "+fmt.Sprint(n))
		}
	}
	return all
}

// Processors returns the first and the last of the processors that the process may use, or the only one.
func Processors() (cpus []int) {
	var set unix.CPUSet
	if unix.SchedGetaffinity(0, &set) != nil {
		return nil
	}
	for i := range len(set) * 64 {
		if !set.IsSet(i) {
			continue
		}
		if len(cpus) == 2 {
			cpus = cpus[:1]
		}
		cpus = append(cpus, i)
	}
	return cpus
}

// Commands returns the shell commands that give a setting this value.
func (c *Card) Commands(which Setting, value string) []string {
	if which != Affinity {
		return []string{fmt.Sprintf("%s %s %s", which, c.Name, value)}
	}
	lists := strings.Fields(value)
	if len(lists) == 1 {
		dir := filepath.Join("/sys/bus/pci/devices", c.bus, "msi_irqs")
		return []string{fmt.Sprintf("for i in $(ls %s); do echo %s > /proc/irq/$i/smp_affinity_list; done", dir, value)}
	}
	var all []string
	irqs, err := c.interrupts()
	for i, irq := range irqs {
		if err == nil && i < len(lists) {
			all = append(all, fmt.Sprintf("echo %s > %s", lists[i], affinityFile(irq)))
		}
	}
	return all
}
