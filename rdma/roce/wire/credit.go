package wire

// noCredits is the code of a responder that does not keep end-to-end credits.
const noCredits = 31

// creditTable is table 44 of the IBTA specification, volume 1, 9.7.7.2.
var creditTable = [noCredits]uint32{0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048,
	3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768}

// credits returns how many more requests the responder has receives for, from the code of an ACK.
// limited is false if the code sets no limit.
func credits(code uint8) (n uint32, limited bool) {
	code &= uint8(valueMask)
	if code == noCredits {
		return 0, false
	}
	return creditTable[code], true
}
