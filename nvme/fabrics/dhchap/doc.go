// Package dhchap is the controller's side of DH-HMAC-CHAP, by which an NVMe host proves who it is, and asks its controller for the same: section
// 8.13 of the NVM Express base specification, and the kernel's include/linux/nvme-auth.h.
//
//	host                                                      Session
//	AUTH_Negotiate: hashes, groups ─────────────────────────▶ Take
//	                                                          Next ──▶ DH-HMAC-CHAP_Challenge: C1, and g^x
//	DH-HMAC-CHAP_Reply: proof of the host's key, C2, g^y ───▶ Take
//	                                                          Next ──▶ DH-HMAC-CHAP_Success1: proof of the controller's key
//	DH-HMAC-CHAP_Success2 (where it asked for that) ────────▶ Take
//
// What goes wrong is told by AUTH_Failure1, and is the end of the queue. A key is never sent, and what is sent says nothing of it that helps to
// guess: the group sees to that also where a key is weak. What comes after it is neither encrypted nor signed.
//
// Threads. A Session belongs to one goroutine at a time. Take of a group computes for a millisecond and more: have it done where nothing waits for it.
package dhchap
