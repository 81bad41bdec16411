package flows

import (
	"unsafe"

	library "github.com/unifiedd/unifiedd/flows/attached"
)

// inFrame is the offset of a packet in its frame: frames of a program's memory are whole pages of its mapping.
func inFrame(m *library.Message) uintptr {
	return uintptr(unsafe.Pointer(unsafe.SliceData(m.Data))) % 4096
}
