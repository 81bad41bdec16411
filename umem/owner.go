package umem

// Owner is a kind of holder. Frames are counted by it.
type Owner uint8

const (
	// OwnerPool has the free frames.
	OwnerPool Owner = iota
	// OwnerWorker has frames between two ports.
	OwnerWorker
	// OwnerXDP has frames in the rings of an AF_XDP socket or the driver's.
	OwnerXDP
	// OwnerNVMe has frames of submitted block I/O.
	OwnerNVMe
	// OwnerRDMA has frames of posted work requests.
	OwnerRDMA
	// OwnerGranted has frames that a peer may write over RDMA.
	OwnerGranted
	// OwnerShared has frames that several queue pairs send at once.
	OwnerShared
	// OwnerCache has frames with blocks of a disk, to be sent again.
	OwnerCache
	// OwnerAttached has frames that an attached program has.
	OwnerAttached

	owners
)

var ownerNames = [owners]string{"pool", "worker", "xdp", "nvme", "rdma", "granted", "shared", "cache", "attached"}

func (o Owner) String() string { return ownerNames[o] }

// Owners lists every kind of holder.
func Owners() []Owner {
	return []Owner{OwnerPool, OwnerWorker, OwnerXDP, OwnerNVMe, OwnerRDMA, OwnerGranted, OwnerShared, OwnerCache, OwnerAttached}
}
