package documents

// page is what a page has besides its commands. Commands stand here as they do in pages.
type page struct {
	before    string            // they make what the page presumes
	first     map[string]string // they run before one of the page's
	after     string            // they look at what came of it
	lacks     map[string]string // what a command says on a machine without the device, or the module, that it needs
	elsewhere map[string]string // commands that another test runs: its directory and name
	long      bool              // it takes minutes
}

// sends makes the other machine send packets to UDP port 5000 of the first one, until the page ends.
const sends = "there$ while sleep 0.001; do echo tick > /dev/udp/10.0.0.1/5000; done &\n"

// runs starts the daemon with the page's first configuration.
const runs = "here$ cp 1.yaml /etc/unifiedd/unifiedd.yaml\nhere$ unifiedd run -c /etc/unifiedd/unifiedd.yaml &\nmsg=\"flow runs\"\n"

// records starts the daemon with a flow feed, which records what arrives at UDP port 5000.
const records = `here$ echo 'region: {size: 64MiB, pages: ordinary}' > /etc/unifiedd/unifiedd.yaml
here$ echo 'flows: [{name: feed, from: {interface: eth1, filter: udp dst port 5000}, to: {file: /var/lib/unifiedd/feed, segment: {size: 4MiB}}}]' >> /etc/unifiedd/unifiedd.yaml
here$ unifiedd run -c /etc/unifiedd/unifiedd.yaml &
msg="flow runs" flow=feed
`

// strategist is the daemon's user, as the package makes it.
const strategist = "here$ echo 'unifiedd:x:64321:64321::/nonexistent:/usr/sbin/nologin' >> /etc/passwd\n"

// members starts a group of three.
const members = `a$ unifiedd run -c 1.yaml &
b$ sed 's/self: a/self: b/; s/listen: 10.0.0.1/listen: 10.0.0.2/' 1.yaml > b.yaml
c$ sed 's/self: a/self: c/; s/listen: 10.0.0.1/listen: 10.0.0.3/' 1.yaml > c.yaml
b$ unifiedd run -c b.yaml &
c$ unifiedd run -c c.yaml &
`

// replaces replaces member c by d, as the page says.
const replaces = `a$ cp 1.yaml a.yaml && for f in 1 a; do sed -i -E 's/(- .name: a.*)}/\1, number: 1}/; s/(- .name: b.*)}/\1, number: 2}/; s/(- .name: c.*)}/\1, number: 3}\n          - {name: d, address: 10.0.0.4:7491, clients: 10.0.0.4:7471, number: 4, joins: true}/' $f.yaml; done
b$ cp ../../0/home/a.yaml . && sed 's/self: a/self: b/; s/listen: 10.0.0.1/listen: 10.0.0.2/' a.yaml > b.yaml && unifiedd reload
c$ cp ../../0/home/a.yaml . && sed 's/self: a/self: c/; s/listen: 10.0.0.1/listen: 10.0.0.3/' a.yaml > c.yaml && unifiedd reload
a$ unifiedd reload
d$ cp ../../0/home/a.yaml . && sed 's/self: a/self: d/; s/listen: 10.0.0.1/listen: 10.0.0.4/' a.yaml > d.yaml
d$ unifiedd run -c d.yaml &
a$ unifiedd group replace orders c d
a$ unifiedd group status orders
d       4       voter  follows
`

// named starts a registry and a group of three that is registered there.
const named = `registry$ etcd --listen-client-urls http://10.0.0.5:2379,http://127.0.0.1:2379 --advertise-client-urls http://10.0.0.5:2379 --listen-peer-urls http://127.0.0.1:2380 &
ready to serve client requests
a$ unifiedd run -c 4.yaml &
b$ sed 's/self: a/self: b/; s/name: storage-1/name: storage-2/' 4.yaml > b.yaml
c$ sed 's/self: a/self: c/; s/name: storage-1/name: storage-3/' 4.yaml > c.yaml
b$ unifiedd run -c b.yaml &
c$ unifiedd run -c c.yaml &
`

// disk makes a device /dev/nvme0n1 in the first machine's mounts.
const disk = `here$ mkdir dev && mount -t tmpfs tmpfs dev && for d in /dev/*/; do mkdir dev/$(basename $d) && mount --rbind $d dev/$(basename $d); done
here$ cp -a /dev/null /dev/zero /dev/full /dev/random /dev/urandom dev/ && truncate -s 64M image && ln -s $PWD/image dev/nvme0n1 && mount --rbind dev /dev
`

// certificates makes those that the page of TLS explains, for both machines.
const certificates = `here$ openssl req -x509 -newkey ed25519 -nodes -days 3650 -subj /CN=unifiedd-ca -keyout ca.key -out ca.pem
here$ for name in storage backup1; do openssl req -newkey ed25519 -nodes -subj /CN=$name -keyout $name.key -out $name.csr && printf "subjectAltName=DNS:$name\n" > $name.ext && openssl x509 -req -days 365 -in $name.csr -CA ca.pem -CAkey ca.key -CAcreateserial -extfile $name.ext -out $name.pem; done
there$ cp ../../0/home/ca.pem . && cp ../../0/home/storage.pem here.pem && cp ../../0/home/storage.key here.key
`

const (
	packages   = "packaging/packages TestCleanDebian"
	containers = "packaging/packages TestContainers"
	noFabrics  = "nvme-fabrics|Failed to scan topology"
	noSystemd  = "System has not been booted with systemd"
	noModule   = "Module [a-z_-]+ not found"
	noCard     = "sriov_numvfs: No such file|Operation not supported|Cannot find device"
)

// pages are those that need more than machines with an interface eth1.
var pages = map[string]page{
	"README.md": { // on a machine without huge pages. The host goes on with its packets
		before:    "here$ mount -t tmpfs none /sys/kernel/mm/hugepages\nthere$ ping -i 0.05 10.0.0.1 > pings &\n" + sends,
		after:     "there$ kill -INT %1; wait %1; tail -3 pings\n 0% packet loss\n",
		first:     map[string]string{"unifiedd run -c /etc/unifiedd/unifiedd.yaml &": "here$ cp 1.yaml /etc/unifiedd/unifiedd.yaml\n"},
		elsewhere: map[string]string{"make packages && apt install ./build/packages/unifiedd_*_amd64.deb": packages},
	},
	"docs/README.md": {before: "here$ ip link del eth1\n"},
	"docs/how-to/attach.md": {
		before: strategist + runs + "here$ mkdir local work && mount -t overlay overlay -o lowerdir=/usr/local,upperdir=local,workdir=work /usr/local\n" +
			"here$ make -s -C $CHECKOUT/libunifiedd OUT=$PWD/out install && ldconfig && ln -s $CHECKOUT/libunifiedd .\n",
		after: "here$ unifiedd log read --raw /var/lib/unifiedd/orders\nbuy 100\n",
	},
	"docs/how-to/cluster.md": {before: named},
	"docs/how-to/groups.md":  {before: members, after: replaces},
	"docs/how-to/huge-pages.md": {
		before: "here$ echo 0 > pages && mount --bind pages /proc/sys/vm/nr_hugepages\n", // it is the machine's, for all tests
		after:  "here$ cat pages\n160\n",
	},
	"docs/how-to/monitoring.md": {before: records + "here$ unifiedd stop feed\nhere$ kill %1; wait %1\nhere$ unifiedd run -c /etc/unifiedd/unifiedd.yaml &\nmsg=\"flow runs\" flow=feed\n"},
	"docs/how-to/nvme-of.md": { // cmd/unifiedd TestPageOfNVMe connects a host in the lab's guest
		before: "here$ truncate -s 16M /var/lib/unifiedd/volume\n" +
			"here$ sed 's/mlx5_0/roce:eth1/; s:device. /dev/nvme1n1:file\\: /var/lib/unifiedd/volume:' 1.yaml > /etc/unifiedd/unifiedd.yaml\n" +
			"here$ unifiedd run -c /etc/unifiedd/unifiedd.yaml &\nmsg=\"flow runs\"\n",
		first: map[string]string{"unifiedd reload                                          # with ana: inaccessible": "here$ sed -i 's/^ *hosts:/      ana: inaccessible\\n&/' /etc/unifiedd/unifiedd.yaml\n"},
		lacks: map[string]string{
			"modprobe nvme-rdma": noModule, "modprobe rdma_rxe && rdma link add rxe0 type rxe netdev eth1     # without an RDMA card": noModule,
			"nvme discover -t rdma -a 10.0.0.1 -s 4420": noFabrics, "nvme connect -t rdma -a 10.0.0.1 -s 4420 -n nqn.2026-01.com.example:volume": noFabrics,
			"nvme list": noFabrics, "nvme connect ... --dhchap-secret=DHHC-1:... --dhchap-ctrl-secret=DHHC-1:...": ".", "systemctl stop unifiedd": noSystemd,
		},
	},
	"docs/how-to/orders.md": {before: strategist + "here$ sed s/eth2/eth1/ 1.yaml > eth1.yaml\nhere$ unifiedd run -c eth1.yaml &\nhere$ until unifiedd orders status; do sleep 0.1; done\n"},
	"docs/how-to/persistent-memory.md": {lacks: map[string]string{
		"ndctl create-namespace --mode=devdax --map=mem --align=2M": "failed to create namespace: No such device|No such file",
		"daxctl reconfigure-device --mode=devdax dax1.0":            "No such device|no devices found|reconfigured 0 devices",
	}},
	"docs/how-to/ports.md": {
		before: "here$ ip address add 10.1.0.1/24 dev eth1\nthere$ ip address add 10.1.0.2/24 dev eth1\n" +
			"here$ for port in 7471 7491 9300; do python3 -m http.server $port & done > /dev/null 2>&1\n",
		after: "there$ until echo > /dev/tcp/10.0.0.1/7471 && echo > /dev/tcp/10.0.0.1/7491; do sleep 0.1; done\n" +
			"there$ timeout 1 bash -c 'echo > /dev/tcp/10.0.0.1/9300' || echo refused\nrefused\n" +
			"there$ timeout 1 bash -c 'echo > /dev/tcp/10.1.0.1/7471' || echo refused\nrefused\n",
	},
	"docs/how-to/rdma.md": {
		before: disk,
		lacks:  map[string]string{"modprobe rdma_rxe": noModule, "rdma link add rxe0 type rxe netdev eth1": "."},
	},
	"docs/how-to/reload.md": {
		before: records + "here$ sed -i 's/5000/5001/' /etc/unifiedd/unifiedd.yaml\n",
		after:  "here$ unifiedd status feed\n5001\n",
	},
	"docs/how-to/replay.md": {
		before: sends + "here$ unifiedd capture -i eth1 -c 100 -w feed.pcapng udp\nhere$ cp feed.pcapng a.pcap && cp feed.pcapng b.pcap\n" + records +
			"here$ until ls /var/lib/unifiedd/feed-*; do sleep 0.1; done\nhere$ unifiedd stop feed\n",
	},
	"docs/how-to/sharing-an-interface.md": {before: sends, lacks: map[string]string{
		"echo 2 > /sys/class/net/eth1/device/sriov_numvfs     # on the machine that has the card": noCard,
		"ip link set eth1 vf 0 mac 02:00:00:00:00:10 trust on spoofchk off":                       noCard,
		"ip link set eth1v0 netns 1234                        # a process in the container":       noCard,
	}},
	"docs/how-to/tls.md": {after: "here$ openssl verify -CAfile ca.pem -verify_hostname storage here.pem\nhere.pem: OK\nhere$ openssl verify -CAfile ca.pem -verify_ip 10.0.0.1 here.pem\nhere.pem: OK\n"},
	"docs/how-to/transfer.md": {
		before: "here$ head -c 3000000 /dev/urandom > disk.img && cp disk.img /srv/old.img\nthere$ mkdir -p /srv/images/disks\n" + certificates,
		first:  map[string]string{"unifiedd receive --rdma roce:eth1 --cert here.pem --key here.key --ca ca.pem --allow backup1 /srv/images &": "here$ cp disk.img ../../1/home/\nthere$ cmp disk.img /srv/images/disk.img && cmp disk.img /srv/images/disks/old.img && rm /srv/images/disk.img\nthere$ kill %1; wait %1\n"},
		after: "there$ cmp disk.img /srv/images/disk.img\n" +
			"here$ sum=$(split -b 1M --filter='b3sum --no-names' disk.img | xxd -r -p | sha256sum | cut -c1-64)\n" +
			"here$ unifiedd send --rdma roce:eth1 --cert backup1.pem --key backup1.key --ca ca.pem --server-name storage --as again.img disk.img 10.0.0.2 2>&1 | grep $sum\n",
	},
	"docs/how-to/tuning.md": {before: sends, long: true},
	"docs/how-to/containers.md": {elsewhere: map[string]string{
		"podman tag $(podman pull -q oci:build/image:unifiedd:VERSION) unifiedd:VERSION": containers,
		"podman run --detach --name unifiedd --network host \\\n" +
			"  --cap-drop ALL --cap-add NET_ADMIN,NET_RAW,BPF,PERFMON,IPC_LOCK \\\n" +
			"  --security-opt seccomp=packaging/seccomp.json --read-only --tmpfs /run/unifiedd \\\n" +
			"  --volume /etc/unifiedd:/etc/unifiedd:ro --volume /var/lib/unifiedd:/var/lib/unifiedd \\\n" +
			"  unifiedd:VERSION": containers,
		"podman exec unifiedd unifiedd status": containers, "podman stop unifiedd": containers,
		"podman run ... unifiedd:VERSION doctor -c /etc/unifiedd/unifiedd.yaml": containers,
	}},
	"docs/how-to/install.md": {elsewhere: map[string]string{
		"apt install ./unifiedd_*_amd64.deb      # or: dnf install ./unifiedd-*.x86_64.rpm":               packages,
		"editor /etc/unifiedd/unifiedd.yaml      # an update keeps your changes":                          packages,
		"unifiedd check -c /etc/unifiedd/unifiedd.yaml && unifiedd doctor -c /etc/unifiedd/unifiedd.yaml": packages,
		"systemctl enable --now unifiedd": packages,
	}},
}
