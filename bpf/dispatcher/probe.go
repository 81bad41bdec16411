package dispatcher

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
)

// Probe tries whether the kernel lets this process load a program that a dispatcher calls, an extension: kernels may be locked down against
// such, or be without a BPF compiler.
func Probe() error {
	d, err := load(newFormat([]*member{{}}), false)
	if err != nil {
		return err
	}
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "probe", Type: ebpf.Extension, AttachTarget: d, AttachTo: Function, License: "Dual BSD/GPL", Instructions: function("probe", false),
	})
	if err != nil {
		err = fmt.Errorf("load an extension program: %w", err)
	}
	return errors.Join(err, p.Close(), d.Close())
}
