package doctor

import "github.com/cilium/ebpf"

// programName is the name of a loaded program, or empty where the kernel does not
// tell, which takes CAP_SYS_ADMIN.
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
