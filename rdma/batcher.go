package rdma

// Batcher is a device that can send what is posted to several queue pairs at once, where each time that it sends costs.
type Batcher interface {
	// Begin has requests that are posted from now on wait, those of other threads too, at most until End, which has all of them sent. Both take
	// a moment, wait for nobody and may be called from any goroutine; each Begin has its End soon.
	Begin()
	End()
}
