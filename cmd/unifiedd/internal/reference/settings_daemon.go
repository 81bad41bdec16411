package reference

// daemonSections are the settings of the daemon.
var daemonSections = []section{
	{"Memory", "A queue with rings of 4096 entries takes 34 MiB in the packed layout and 82 MiB in the slot layout.", []row{
		{"region.size", "4MiB and more", "256MiB", "memory for frames and extents; rounded up to whole pages. The rings of io_uring take 2 MiB more"},
		{"region.pages", "`auto`, `2MiB`, `1GiB`, `ordinary`", "`auto`", "the kind of page. `auto`: huge pages of 2 MiB if they are free or can be reserved, or else `ordinary` ones. Not every processor has `1GiB` pages (flag `pdpe1gb`). `ordinary` pages are slower for every device. The log and a metric report them"},
		{"region.device", "an absolute path", "none", "a device-DAX device such as `/dev/dax0.0` that has frames and extents, instead of huge pages: [persistent memory](../how-to/persistent-memory.md). Not with `ordinary` pages"},
		{"region.frame", "2048, 4096", "4096", "bytes of a frame. The slot layout needs 4096"},
		{"region.extent", "power of two, 256KiB to 64MiB", "1MiB", "bytes of an extent, the unit of writes of the packed layout"},
		{"region.extents", "at least what the flows need", "what blocks, NVMe hosts and long messages need, and 16 for other flows", "number of write buffers of `region.extent` bytes. Leave it out. Raise it (64) if status shows losses while the disk is busy. At most half of the region"},
		{"region.node", "a number", "not bound", "NUMA node of the memory, and of the workers that no `cpu` is set for. With `region.device` it must be that of the device"},
		{"region.reserve", "`true`, `false`", "`true`", "reserve missing huge pages at the start, and give them back at the end. Programs that reserve pages at the same time wait for each other. Needs root"},
	}},
	{"Threads", "Without `workers` there is one. Give captures a worker of their own: a worker never sleeps past an event if a peer or a program waits for one of its flows. [Which settings suit which use](../how-to/tuning.md).", []row{
		{"workers[].name", "a word", "`main`", "the name that flows refer to"},
		{"workers[].cpu", "a number", "not pinned", "CPU the thread is pinned to. All other threads of the daemon keep off it, unless the process may use no further one"},
		{"workers[].wait", "`spin`, `sleep`", "`sleep`", "what the thread does when it has no work. `sleep`: it sleeps until there is something. `spin`: it polls again at once (costs the CPU)"},
		{"workers[].sleep", "0s, or 1us to 100ms", "200us", "how long a worker sleeps between two rounds while packets come, if nobody waits for its flows, as for captures. The rings must hold what arrives meanwhile. 0s: it wakes every few packets"},
	}},
	{"The process", "", []row{
		{"user", "name or number", "the user does not change", "run as this user after everything that needs rights is open. The user must be able to read the file and to use what it names; if not, the error names the setting"},
		{"log.level", "`debug`, `info`, `warn`, `error`", "`info`", "the lowest level that is logged, to standard error"},
		{"log.format", "`text`, `json`", "`text`", "format of the log"},
		{"metrics.listen", "host:port", "not served", "serves `/metrics`, `/healthz`, `/readyz` and a [status page](../how-to/monitoring.md#the-status-page) at `/`. 64 connections at most, 16 of one host. At a loopback address the `Host` of a request must be an address, `localhost` or the host's name"},
		{"control.socket", "absolute path", "/run/unifiedd/control.sock", "Unix socket of the commands. It also serves what `metrics.listen` serves, and profiles. Only its owner may use it"},
		{"control.state", "absolute path", "/var/lib/unifiedd", "directory in which the daemon keeps which orders are [stopped](../how-to/orders.md#the-kill-switch), over its restarts"},
		{"trace.directory", "absolute path", "beside `control.socket`, `.trace` instead of `.sock`", "directory of the [flight recorder](../how-to/monitoring.md#the-flight-recorder), on a file system in memory. The daemon makes it, and `unifiedd trace --dir` reads it"},
		{"trace.events", "64 to 1048576, a power of two, or 0", "4096", "rounds of each flow that the [flight recorder](../how-to/monitoring.md#the-flight-recorder) keeps, 32 bytes each. 0: no recorder"},
	}},
	{"Connections over RDMA", "With these three files the TCP connection that begins an RDMA connection uses mutual TLS 1.3. Without them it is plain, and the log says so. [How to make them](../how-to/tls.md).", []row{
		{"tls.certificate", "absolute path", "plain", "PEM file of the certificate shown to peers"},
		{"tls.key", "absolute path", "plain", "PEM file of its key"},
		{"tls.authority", "absolute path", "plain", "PEM file of the authorities that sign the certificates of peers. A reload reads the three files again and ends the sessions of peers that are no longer covered"},
	}},
	{"Peers by name", "How flows find peers that they name as NAME/FLOW: [cluster](../how-to/cluster.md).", []row{
		{"cluster.resolver", "`etcd`, `static`", "flows name addresses", "`etcd`: the daemon registers itself there, and finds others. `static`: peers are where `cluster.peers` says"},
		{"cluster.name", "up to 63 of a-z, 0-9, - and .", "the host's name", "name under which others find this daemon. Two daemons cannot have the same"},
		{"cluster.endpoints", "a list of URLs", "needed with etcd", "where etcd is: `https://HOST:2379`, or `http` without TLS"},
		{"cluster.lease", "2s to 10m, whole seconds", "10s", "how long a daemon that is gone stays registered. Flows follow a peer within two of these times"},
		{"cluster.prefix", "a path", "/unifiedd/", "what the keys in etcd begin with"},
		{"cluster.tls.authority", "absolute path", "plain", "PEM file of the authorities that sign etcd's certificates. Read when the daemon starts"},
		{"cluster.tls.certificate", "absolute path", "none", "PEM file of the daemon's certificate for etcd, and any that replaces it"},
		{"cluster.tls.key", "absolute path", "none", "PEM file of its key"},
		{"cluster.peers[].peer", "NAME/FLOW", "none", "a flow of a daemon that is not in etcd"},
		{"cluster.peers[].address", "host:port", "none", "where it takes connections. A reload may change this list, and flows follow"},
		{"cluster.peers[].group", "host:port", "none", "of a member of a group, where it talks with the others. A witness has no `address`"},
	}},
}
