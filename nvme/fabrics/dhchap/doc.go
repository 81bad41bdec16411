// Package dhchap is the controller's side of DH-HMAC-CHAP, by which an NVMe host authenticates and
// may ask its controller to authenticate too: section 8.13 of the NVM Express base specification,
// and the kernel's include/linux/nvme-auth.h.
//
//	host                                                      Session
//	AUTH_Negotiate: hashes, groups ─────────────────────────▶ Take
//	                                                          Next ──▶ DH-HMAC-CHAP_Challenge: C1, and g^x
//	DH-HMAC-CHAP_Reply: proof of the host's key, C2, g^y ───▶ Take
//	                                                          Next ──▶ DH-HMAC-CHAP_Success1: proof of the controller's key
//	DH-HMAC-CHAP_Success2 (where it asked for that) ────────▶ Take
//
// AUTH_Failure1 reports a failure and ends the queue. A key is never sent, and the messages do not
// help to guess it: with a Diffie-Hellman group that also holds for weak keys. The traffic
// afterwards is neither encrypted nor signed.
//
// Threads. A Session belongs to one goroutine at a time. With a group, Take computes for a
// millisecond and more: call it on a goroutine that nothing waits for.
package dhchap
