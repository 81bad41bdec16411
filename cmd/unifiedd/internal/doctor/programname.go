package doctor

import "github.com/cilium/ebpf"

// programName returns the name of a loaded program. It is empty if the kernel does not give it,
// since that takes CAP_SYS_ADMIN.
func programName(id uint32) string {
	p, err := ebpf.NewProgramFromID(ebpf.ProgramID(id))
	if err != nil {
		return ""
	}
	defer p.Close()
	info, err := p.Info()
	if err != nil {
		return ""
	}
	return info.Name
}
