// Package pipeline connects the receive end of a flow to its transmit end.
//
// A [Source] receives packets or messages in batches of frames, and a [Sink]
// takes frames from the batches. Frames are passed on and never copied; when the
// sink is done with a frame, the frame returns to the source's free list.
//
//	sink.Reap → watermarks → source.Receive(sink) → sink.Flush →
//	acknowledge → source.Supply → sink.Kick → source.Kick
//
// That is one round of [Pipeline.Poll] on the worker's thread. A sink that cannot
// take everything is blocked for the round: its frames stay in the batch, and the
// source receives nothing more for it.
//
// Every kind of flow is opened from an [Env] and becomes a [Run].
package pipeline
