package fabrics

// Opcodes of admin commands, of commands to namespaces, and of both.
const (
	OpGetLogPage  = 0x02
	OpIdentify    = 0x06
	OpAbort       = 0x08
	OpSetFeatures = 0x09
	OpGetFeatures = 0x0a
	OpAsyncEvent  = 0x0c
	OpKeepAlive   = 0x18

	OpFlush       = 0x00
	OpWrite       = 0x01
	OpRead        = 0x02
	OpCompare     = 0x05
	OpWriteZeroes = 0x08
	OpDataset     = 0x09

	OpReservationRegister = 0x0d
	OpReservationReport   = 0x0e
	OpReservationAcquire  = 0x11
	OpReservationRelease  = 0x15

	OpFabrics = 0x7f
)

// Types of Fabrics commands (FCTYPE).
const (
	PropertySet = 0x00
	Connect     = 0x01
	PropertyGet = 0x04
	AuthSend    = 0x05
	AuthReceive = 0x06
	Disconnect  = 0x08
)
