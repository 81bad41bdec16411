package pcapng

import "fmt"

const (
	// MaxText is the longest text in a head, in bytes.
	MaxText = 4096
	// MaxHeadLen is the longest head unit in bytes.
	MaxHeadLen = 1 << 20
)

// Section describes the capturing program and machine: the options of the Section Header Block.
// Empty texts are left out.
type Section struct {
	Comment     string // the user's
	Hardware    string // "Intel Xeon ..."
	OS          string // "Linux 6.18"
	Application string // "unifiedd 1.0"
}

// Interface is one captured queue. Empty texts and a zero speed are left out. Times are always in
// nanoseconds. Packets with times from another clock belong to another Interface.
type Interface struct {
	Name        string // "eth0"
	Description string // "eth0 queue 3"
	Filter      string // as the user wrote it
	Comment     string // the user's
	CardClock   string // if times are from the card's own clock: which clock, and its known properties
	Speed       uint64 // bits per second
	SnapLen     uint32 // bytes; 0 is no limit. The same for all interfaces of a file, or libpcap refuses it
	LinkType    uint16 // 1 Ethernet, 101 RAW or 147 USER0 (a log), 148 USER1 (messages of a feed); the same for all, or libpcap refuses it
}

// Segment has the properties that all batches of a file share.
type Segment struct {
	ID          SegmentID
	Align       uint32 // of batches, in bytes: a power of two, MinAlign to MaxAlign
	FirstPacket uint64 // number of the first packet that will be in this file
}

// Option codes of the Section Header Block and the Interface Description Block.
const (
	shbHardware = 2
	shbOS       = 3
	shbUserAppl = 4

	ifName        = 2
	ifDescription = 3
	ifSpeed       = 8
	ifTSResol     = 9
	ifFilter      = 11
	ifCardClock   = 0x8001 // range for local use: times are from the card's own clock; see comment

	nanoseconds = 9 // if_tsresol: ten to the minus nine
)

// AppendStreamHead appends the beginning of a plain pcapng stream: a section and its interfaces.
func AppendStreamHead(dst []byte, s Section, ifs []Interface) ([]byte, error) {
	if err := checkHead(s, ifs); err != nil {
		return nil, err
	}
	dst = appendSection(dst, s)
	for i := range ifs {
		dst = appendInterface(dst, &ifs[i])
	}
	return dst, nil
}

// AppendSegmentHead appends the head unit of a segment file, a multiple of seg.Align bytes long. It belongs at offset
// 0, and must be durable before the first batch is written.
func AppendSegmentHead(dst []byte, s Section, ifs []Interface, seg Segment) ([]byte, error) {
	if !validAlign(seg.Align) {
		return nil, fmt.Errorf("capture file head: alignment %d is not a power of two from %d to %d", seg.Align, MinAlign, MaxAlign)
	}
	start := len(dst)
	dst, err := AppendStreamHead(dst, s, ifs)
	if err != nil {
		return nil, err
	}
	used := uint64(len(dst) - start)
	length := roundUp(used+MinMarkLen, uint64(seg.Align))
	if length > MaxHeadLen {
		return nil, fmt.Errorf("capture file head: %d bytes for %d interfaces, at most %d (use fewer queues per file)", length, len(ifs), MaxHeadLen)
	}
	b := Batch{Segment: seg.ID, Align: seg.Align, Length: uint32(length), FirstPacket: seg.FirstPacket}
	dst = append(dst, make([]byte, length-used)...)
	putMark(dst[start+int(used):], &b, kindHead)
	return dst, nil
}

// Rehead rewrites an intact head unit for another segment, with length bytes. It returns nil if the
// head does not fit.
func Rehead(head []byte, seg Segment, length int64) []byte {
	used := len(head) - int(le.Uint32(head[len(head)-4:]))
	if length > MaxHeadLen || length%int64(seg.Align) != 0 || length-int64(used) < MinMarkLen {
		return nil
	}
	made := make([]byte, length)
	copy(made, head[:used])
	b := Batch{Segment: seg.ID, Align: seg.Align, Length: uint32(length), FirstPacket: seg.FirstPacket}
	putMark(made[used:], &b, kindHead)
	return made
}

func checkHead(s Section, ifs []Interface) error {
	if len(ifs) == 0 {
		return fmt.Errorf("capture file head: no interface (name at least one)")
	}
	if err := checkTexts("section", s.Comment, s.Hardware, s.OS, s.Application); err != nil {
		return err
	}
	for i := range ifs {
		if err := checkInterface(&ifs[i], &ifs[0]); err != nil {
			return err
		}
	}
	return nil
}

func checkInterface(f, first *Interface) error {
	if f.SnapLen != first.SnapLen || f.LinkType != first.LinkType {
		return fmt.Errorf("capture file head: interface %s has snapshot length %d and link type %d, %s has %d and %d (libpcap wants them equal in a file)",
			f.Name, f.SnapLen, f.LinkType, first.Name, first.SnapLen, first.LinkType)
	}
	if f.SnapLen > MaxCapLen {
		return fmt.Errorf("capture file head: interface %s: snapshot length %d is over %d", f.Name, f.SnapLen, MaxCapLen)
	}
	return checkTexts("interface "+f.Name, f.Name, f.Description, f.Filter, f.Comment, f.CardClock)
}

func checkTexts(what string, texts ...string) error {
	for _, t := range texts {
		if len(t) > MaxText {
			return fmt.Errorf("capture file head: %.80s: a text of %d bytes, at most %d", what, len(t), MaxText)
		}
	}
	return nil
}

func appendSection(dst []byte, s Section) []byte {
	dst, start := beginBlock(dst, TypeSection)
	dst = le.AppendUint32(dst, byteOrderMagic)
	dst = le.AppendUint16(dst, 1)          // major
	dst = le.AppendUint16(dst, 0)          // minor
	dst = le.AppendUint64(dst, ^uint64(0)) // section length not known
	dst = appendText(dst, optComment, s.Comment)
	dst = appendText(dst, shbHardware, s.Hardware)
	dst = appendText(dst, shbOS, s.OS)
	dst = appendText(dst, shbUserAppl, s.Application)
	return endBlock(appendEnd(dst), start)
}

func appendInterface(dst []byte, f *Interface) []byte {
	dst, start := beginBlock(dst, TypeInterface)
	dst = le.AppendUint16(dst, f.LinkType)
	dst = le.AppendUint16(dst, 0)
	dst = le.AppendUint32(dst, f.SnapLen)
	dst = appendText(dst, ifName, f.Name)
	dst = appendText(dst, ifDescription, f.Description)
	if f.Speed != 0 {
		dst = appendUint64(dst, ifSpeed, f.Speed)
	}
	dst = appendOption(dst, ifTSResol, []byte{nanoseconds})
	if f.Filter != "" {
		dst = appendOption(dst, ifFilter, append([]byte{0}, f.Filter...)) // 0: a libpcap filter string
	}
	if f.CardClock != "" {
		dst = appendText(dst, optComment, f.CardClock)
		dst = appendOption(dst, ifCardClock, nil)
	}
	dst = appendText(dst, optComment, f.Comment) // after the other: capinfos shows only the first
	return endBlock(appendEnd(dst), start)
}

// Shortened truncates a text to the length that fits a head.
func Shortened(text string) string {
	const ellipsis = " ..."
	if len(text) <= MaxText {
		return text
	}
	return text[:MaxText-len(ellipsis)] + ellipsis
}
