package capture

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// stenoBlock is the size of a block of a stenotype file. Each block is a block of a packet(7) ring as the
// kernel filled it: struct tpacket_block_desc, then the packets, each after a struct tpacket3_hdr.
const stenoBlock = 1 << 20

// readSteno reads a file of stenotype's.
func readSteno(r io.Reader, each func([]byte)) error {
	in, block := bufio.NewReaderSize(r, stenoBlock), make([]byte, stenoBlock)
	for n := 0; ; n++ {
		if _, err := io.ReadFull(in, block); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := readStenoBlock(block, each); err != nil {
			return fmt.Errorf("block %d: %w", n, err)
		}
	}
}

func readStenoBlock(b []byte, each func([]byte)) error {
	packets, at := binary.LittleEndian.Uint32(b[12:]), uint64(binary.LittleEndian.Uint32(b[16:]))
	for i := range packets {
		if at+32 > uint64(len(b)) {
			return fmt.Errorf("packet %d of %d lies outside", i, packets)
		}
		h := b[at:]
		next, length, mac := binary.LittleEndian.Uint32(h), uint64(binary.LittleEndian.Uint32(h[12:])), uint64(binary.LittleEndian.Uint16(h[24:]))
		if mac+length > uint64(len(h)) {
			return fmt.Errorf("packet %d of %d is longer than the block", i, packets)
		}
		each(h[mac : mac+length])
		at += uint64(next)
	}
	return nil
}
