package pcapng

import "testing"

func TestDirectionGolden(t *testing.T) {
	const capLen = 5
	for _, c := range []struct {
		extra uint32
		put   func(dst []byte, blockLen uint32)
		want  string
	}{
		{DirectionLen, func(dst []byte, n uint32) { PutDirectedTail(dst, capLen, n, Outbound) }, "000000 02000400 02000000 30000000"},
		{NumberLen + DirectionLen, func(dst []byte, n uint32) { PutNumberedDirectedTail(dst, capLen, n, 7, Inbound) },
			"000000 05000800 0700000000000000 02000400 01000000 3c000000"},
	} {
		blockLen := PacketBlockLen(capLen+c.extra, 4)
		block := make([]byte, blockLen)
		PutPacketHeader(block, 0, 1, capLen, capLen, blockLen)
		tail := poisoned(int(PacketTailLen(capLen, blockLen)))
		c.put(tail, blockLen)
		wantBytes(t, tail, c.want)
		copy(block[PacketHeaderLen+capLen:], tail)
		check := checker{interfaces: 1}
		if err := check.packet(Block{Type: TypePacket, Body: block[8 : blockLen-4], raw: block}); err != nil {
			t.Errorf("the reader refuses the block: %v", err)
		}
	}
}
