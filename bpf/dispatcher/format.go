package dispatcher

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Most is how many programs a dispatcher has room for.
const Most = 10

const (
	programName = "xdp_dispatcher" // of every dispatcher
	magic       = 'X' + 'D' + 'P'
	version     = 2
	proceed     = 31 // what a function returns that no program is in the place of: the next one runs
)

// format is the value of a dispatcher's map, struct xdp_dispatcher_config of libxdp. Of the programs each has
// an element of the arrays.
type format struct {
	Magic, Version, Programs, Fragments uint8
	Actions, Priorities, Flags          [Most]uint32
}

func (f *format) bytes() ([]byte, error) { return binary.Append(nil, binary.NativeEndian, f) }

// settings are those of a program.
func (f *format) settings(n int) Settings {
	return Settings{
		Priority: f.Priorities[n], Actions: f.Actions[n] &^ (1 << proceed),
		Fragments: f.Flags[n]&unix.BPF_F_XDP_HAS_FRAGS != 0,
	}
}

// newFormat describes a dispatcher with these programs. It takes packets of several
// buffers if all of them do.
func newFormat(members []*member) *format {
	f := &format{Magic: magic, Version: version, Programs: uint8(len(members)), Fragments: 1}
	for n, m := range members {
		f.Actions[n], f.Priorities[n] = m.Actions|1<<proceed, m.Priority
		if m.Fragments {
			f.Flags[n] = unix.BPF_F_XDP_HAS_FRAGS
		} else {
			f.Fragments = 0
		}
	}
	return f
}

// open gives the dispatcher with this id, and what its map says. The caller closes it. Errors match ErrOther,
// ErrVersion, ErrPermission, or fs.ErrNotExist where there is no such program.
func open(id ebpf.ProgramID) (*ebpf.Program, *format, error) {
	p, err := ebpf.NewProgramFromID(id)
	if errors.Is(err, fs.ErrPermission) {
		return nil, nil, fmt.Errorf("look at XDP program %d: %w: %w (%s)", id, ErrPermission, err, capabilities)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("look at XDP program %d: %w", id, err)
	}
	f, err := formatOf(p)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("XDP program %d: %w", id, err), p.Close())
	}
	return p, f, nil
}

// formatOf reads a dispatcher's map.
func formatOf(p *ebpf.Program) (*format, error) {
	info, err := p.Info()
	if err != nil {
		return nil, err
	}
	maps, _ := info.MapIDs()
	if info.Name != programName || len(maps) != 1 {
		return nil, fmt.Errorf("%w: it is called %q", ErrOther, info.Name)
	}
	m, err := ebpf.NewMapFromID(maps[0])
	if err != nil {
		return nil, fmt.Errorf("open its map: %w", err)
	}
	defer m.Close()
	if m.Type() != ebpf.Array || m.KeySize() != 4 || m.ValueSize() < 4 || m.MaxEntries() != 1 || m.Flags()&unix.BPF_F_RDONLY_PROG == 0 {
		return nil, fmt.Errorf("%w: its map is another", ErrOther)
	}
	value, err := m.LookupBytes(uint32(0))
	if err != nil {
		return nil, fmt.Errorf("read its map: %w", err)
	}
	return parse(value)
}

// remedy is what to do about a dispatcher that cannot be joined.
const remedy = "unload its programs, as with xdp-loader unload, and load them with a libxdp of protocol version 2"

// parse reads the value of a dispatcher's map. Before version 2 it had no magic number.
func parse(value []byte) (*format, error) {
	if value[0] != magic {
		return nil, fmt.Errorf("%w: before 2, and 2 is what is known here (%s)", ErrVersion, remedy)
	}
	if value[1] != version {
		return nil, fmt.Errorf("%w: %d, and 2 is what is known here (%s)", ErrVersion, value[1], remedy)
	}
	f := new(format)
	if n, err := binary.Decode(value, binary.NativeEndian, f); err != nil || n != len(value) || f.Programs > Most {
		return nil, fmt.Errorf("%w: its map is not that of version 2 (%s)", ErrVersion, remedy)
	}
	return f, nil
}

// Is reports whether a program is a dispatcher, of whatever version, as far as the kernel tells.
func Is(id uint32) bool {
	p, _, err := open(ebpf.ProgramID(id))
	_ = p.Close()
	return err == nil || errors.Is(err, ErrVersion)
}
