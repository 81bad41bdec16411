package client

import "time"

// WaitForEvents takes the limit from the waits of the client's thread, so that an event of which nobody tells is not found.
func (k *Client) WaitForEvents() error {
	return k.loop.do(func() error { k.loop.bell.limit = 24 * time.Hour; return nil })
}

// Waits is how often the client's thread has waited.
func (k *Client) Waits() uint64 { return k.loop.bell.waits.Load() }
