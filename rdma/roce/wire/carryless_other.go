//go:build !amd64

package wire

const folds = false

func carryless(uint32, *byte, int, *byte, int) uint32 {
	panic("wire: no carry-less multiplication here")
}
