module github.com/unifiedd/unifiedd/selftests/peers

go 1.26.8

require (
	github.com/asavie/xdp v0.3.3
	github.com/google/gopacket v1.1.19
	github.com/pawelgaczynski/giouring v0.0.0-20230826085535-69588b89acb9
)

require (
	github.com/cilium/ebpf v0.4.0 // indirect
	github.com/vishvananda/netlink v1.1.0 // indirect
	github.com/vishvananda/netns v0.0.0-20191106174202-0a2b9b5464df // indirect
	golang.org/x/net v0.0.0-20190923162816-aa69164e4478 // indirect
	golang.org/x/sys v0.10.0 // indirect
)
