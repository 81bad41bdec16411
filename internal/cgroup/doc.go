// Package cgroup reads the limits that control groups set to this process: how much of the processors it may use, and
// how many huge pages it may take. It reads version 2 and, where a controller is still there, version 1.
//
// A process is also bound by the groups above its own. In a container these are often not visible; what the container
// manager sets is.
//
// Documentation/admin-guide/cgroup-v2.rst, and cgroup-v1/hugetlb.rst.
package cgroup
