package filter

// Offsets in bytes of the fields of struct parsed in unifiedd.bpf.c, which says
// what they hold; a test compares them with the BTF of the compiled program. A
// field that the packet does not have is zero, and its flag is not set.
const (
	offSrc6      = 0
	offDst6      = 16
	offSrc4      = 32
	offDst4      = 36
	offEthDst    = 40
	offEthSrc    = 48
	offFlags     = 56
	offEthertype = 60
	offVLAN0     = 62
	offVLAN1     = 64
	offSrcPort   = 66
	offDstPort   = 68
	offTags      = 70
	offProto     = 71
)

// Bits of the field flags, enum parsed_flag.
const (
	flagEther = 1 << iota
	flagIPv4
	flagIPv6
	flagProto
	flagPorts
)
