package tune

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/unifiedd/unifiedd/cmd/unifiedd/internal/card"
	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/internal/netdev"
)

// Subject is what is measured.
type Subject struct {
	Name   string // path or interface
	Kind   Kind
	Size   config.Size // of generated packets, for a file or a device
	Filter string      // of packets of an interface; empty: all
	Pages  config.Pages
	// Outside has settings of an interface's card that are changed and measured, too; nil: the card is left alone.
	Outside *Outside
	Only    []string // settings to try, by their names; empty: all

	segment config.Size // of a ring on a device; 0: the default
}

// Kind is a kind of subject.
type Kind string

// The kinds.
const (
	File      Kind = "file"      // packets are generated, and written to files that are removed again
	Device    Kind = "device"    // packets are generated, and written to the device
	Interface Kind = "interface" // packets arrive, and are discarded
)

// KindOf returns what a name is: a path begins with a slash or a point.
func KindOf(name string) (Kind, error) {
	if !strings.HasPrefix(name, "/") && !strings.HasPrefix(name, ".") {
		if err := netdev.ValidName(name); err != nil {
			return "", err
		}
		return Interface, nil
	}
	info, err := os.Stat(name)
	switch {
	case errors.Is(err, os.ErrNotExist):
		if dir, err := os.Stat(filepath.Dir(name)); err != nil || !dir.IsDir() {
			return "", fmt.Errorf("%s: its directory does not exist", name)
		}
		return File, nil
	case err != nil:
		return "", err
	case info.IsDir():
		return "", fmt.Errorf("%s is a directory (name a file in it, which need not exist)", name)
	case info.Mode()&os.ModeDevice != 0 && info.Mode()&os.ModeCharDevice == 0:
		return Device, nil
	case !info.Mode().IsRegular():
		return "", fmt.Errorf("%s is neither a file, nor a block device, nor an interface", name)
	}
	return File, nil
}

// setting is a setting with its values, the default first. An empty value stands for a setting that is left out.
type setting struct {
	key    string
	values []string
}

// Settings returns the names of all settings that are tried, of any kind of subject.
func Settings() (names []string) {
	for _, kind := range []Kind{File, Device, Interface} {
		for _, one := range inConfiguration(kind) {
			if !slices.Contains(names, one.key) {
				names = append(names, one.key)
			}
		}
	}
	for _, which := range card.Order() {
		names = append(names, string(which))
	}
	return names
}

// settings returns what is tried, the settings with the largest effects first, and those of a card last.
func (s *Subject) settings() (all []setting, err error) {
	outside, err := s.Outside.settings()
	return append(inConfiguration(s.Kind), outside...), err
}

// inConfiguration returns the settings of a configuration that are tried.
func inConfiguration(kind Kind) (all []setting) {
	switch kind {
	case File:
		all = []setting{{"to.layout", []string{"packed", "slot"}}, {"to.prepare", []string{"", "zero", "none"}}, {"region.extent", []string{"1MiB", "512KiB", "4MiB"}}}
	case Device:
		all = []setting{{"to.layout", []string{"packed", "slot"}}, {"region.extent", []string{"1MiB", "512KiB", "4MiB"}}}
	case Interface:
		all = []setting{{"worker.sleep", []string{"200us", "0s", "50us", "1ms"}}, {"from.ring", []string{"4096", "1024", "16384"}}}
	}
	return append(all, setting{"worker.cpu", processors()})
}

// only leaves the other values of those settings that are to be tried.
func (s *Subject) only(all []setting) ([]setting, error) {
	if len(s.Only) == 0 {
		return all, nil
	}
	var names []string
	for _, one := range all {
		names = append(names, one.key)
	}
	for _, name := range s.Only {
		if !slices.Contains(names, name) {
			return nil, fmt.Errorf("%q is no setting that can be tried here: these are %s", name, strings.Join(names, ", "))
		}
	}
	all = slices.Clone(all)
	for i, one := range all {
		if !slices.Contains(s.Only, one.key) {
			all[i].values = one.values[:1]
		}
	}
	return all, nil
}

// processors returns the processors to try for a worker: none in particular, the last and the first that may be used.
func processors() []string {
	all, may := []string{""}, card.Processors()
	if len(may) < 2 {
		return all
	}
	return append(all, fmt.Sprint(may[len(may)-1]), fmt.Sprint(may[0]))
}

// choice has the value of each setting.
type choice map[string]string

// defaults returns the first value of each setting.
func defaults(all []setting) choice {
	c := choice{}
	for _, s := range all {
		c[s.key] = s.values[0]
	}
	return c
}

// with returns the choice with another value.
func (c choice) with(key, value string) choice {
	out := choice{}
	for k, v := range c {
		out[k] = v
	}
	out[key] = value
	return out
}

// regionSize is the size of the region of each run.
const regionSize = 128 * config.MiB

// text returns the configuration of a flow with these settings. measured is the one to measure: its files are removed,
// and a device is written over.
func (s *Subject) text(c choice, measured bool) string {
	var b strings.Builder
	extent, size := c["region.extent"], regionSize
	fmt.Fprintf(&b, "region: {size: %s, pages: %s", size, s.Pages)
	if extent != "" {
		fmt.Fprintf(&b, ", extent: %s", extent)
	}
	b.WriteString("}\nworkers:\n  - {name: main")
	if sleep := c["worker.sleep"]; sleep != "" {
		fmt.Fprintf(&b, ", sleep: %s", sleep)
	}
	if cpu := c["worker.cpu"]; cpu != "" {
		fmt.Fprintf(&b, ", cpu: %s", cpu)
	}
	b.WriteString("}\nflows:\n  - name: tuned\n")
	if s.Kind == Interface {
		fmt.Fprintf(&b, "    from: {interface: %q, ring: %s", s.Name, c["from.ring"])
		if s.Filter != "" {
			fmt.Fprintf(&b, ", filter: %q", s.Filter)
		}
		b.WriteString("}\n    to: {discard: true}\n")
		return b.String()
	}
	fmt.Fprintf(&b, "    from: {generate: %s}\n    to:\n      layout: %s\n", s.Size, c["to.layout"])
	if s.Kind == Device {
		fmt.Fprintf(&b, "      device: %q\n", s.Name)
		if s.segment > 0 {
			fmt.Fprintf(&b, "      segment: {size: %s}\n", s.segment)
		}
		if measured {
			b.WriteString("      force: true\n")
		}
		return b.String()
	}
	name := s.Name
	if measured {
		name = s.scratch()
	}
	fmt.Fprintf(&b, "      file: %q\n", name)
	if prepare := c["to.prepare"]; prepare != "" {
		fmt.Fprintf(&b, "      prepare: %s\n", prepare)
	}
	if measured {
		b.WriteString("      segment: {size: 64MiB, keep: 2}\n")
	}
	return b.String()
}

// scratch is the name of the files of runs, beside the file.
func (s *Subject) scratch() string {
	return filepath.Join(filepath.Dir(s.Name), fmt.Sprintf(".unifiedd-tune-%d", os.Getpid()))
}

// tidy removes the files of a run.
func (s *Subject) tidy() error {
	if s.Kind != File {
		return nil
	}
	names, err := filepath.Glob(s.scratch() + "*")
	for _, name := range names {
		err = errors.Join(err, os.Remove(name))
	}
	return err
}

// segments is how many segments a ring on a device has at least.
const segments = 16

// prepare makes the path of the subject absolute, as configurations need it, and chooses segments that fit a device.
func (s *Subject) prepare() (err error) {
	if s.Kind == Interface {
		return nil
	}
	if s.Name, err = filepath.Abs(s.Name); err != nil || s.Kind == File {
		return err
	}
	f, err := os.Open(s.Name)
	if err != nil {
		return err
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return fmt.Errorf("size of %s: %w", s.Name, err)
	}
	if one := config.Size(size) / segments / config.MiB * config.MiB; one < config.GiB {
		s.segment = max(one, config.MiB)
	}
	return nil
}
