package host

import (
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Node is a part of the machine with memory of its own (NUMA): a socket, or a part of one. Its processors read that memory
// faster than the memory of others.
type Node struct {
	ID         int
	Processors []int // that this process may use
}

// Nodes returns the nodes with processors that this process may use, by ID. With less than two all memory is equally near.
func Nodes() []Node { return readNodes("/sys/devices/system/node", mayUse) }

// mayUse reports whether a processor is in this process's affinity mask.
func mayUse(processor int) bool {
	mask := unix.NewCPUSet(mostProcessors)
	return unix.SchedGetaffinityDynamic(0, mask) == nil && mask.IsSet(processor)
}

// mostProcessors is the largest number of processors that Linux can be built for.
const mostProcessors = 8192

func readNodes(dir string, mayUse func(processor int) bool) []Node {
	entries, _ := os.ReadDir(dir)
	var nodes []Node
	for _, entry := range entries {
		id, err := strconv.Atoi(strings.TrimPrefix(entry.Name(), "node"))
		if err != nil {
			continue
		}
		processors := slices.DeleteFunc(readList(readText(path.Join(dir, entry.Name(), "cpulist"))), func(p int) bool { return !mayUse(p) })
		if len(processors) > 0 { // some nodes are memory alone
			nodes = append(nodes, Node{id, processors})
		}
	}
	slices.SortFunc(nodes, func(a, b Node) int { return a.ID - b.ID })
	return nodes
}

// readList reads a list of Linux's, such as "0-3,8-11".
func readList(list string) (numbers []int) {
	for part := range strings.SplitSeq(list, ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		first, err := strconv.Atoi(from)
		last, err2 := strconv.Atoi(to)
		if err != nil || err2 != nil || first < 0 || last >= mostProcessors {
			continue
		}
		for n := first; n <= last; n++ {
			numbers = append(numbers, n)
		}
	}
	return numbers
}

// A Division gives each node a part of the threads that work together, and of what they work on.
type Division struct {
	Nodes  []Node
	starts []int // the first thread of each node, and the number of threads
}

// Divide gives each of two or more nodes as many of at least as many threads as are its share of the processors, and at least one.
func Divide(nodes []Node, threads int) Division {
	all := 0
	for _, n := range nodes {
		all += len(n.Processors)
	}
	d, before := Division{nodes, make([]int, len(nodes)+1)}, 0
	for i, n := range nodes {
		before += len(n.Processors)
		d.starts[i+1] = min(max((threads*before+all/2)/all, d.starts[i]+1), threads-(len(nodes)-1-i))
	}
	return d
}

// Threads returns the threads of a node: from the first up to the one before last.
func (d Division) Threads(node int) (first, last int) { return d.starts[node], d.starts[node+1] }

// Part returns what the threads of a node have of n items that all threads share evenly, in their order.
func (d Division) Part(node int, n int64) (first, last int64) {
	threads := int64(d.starts[len(d.Nodes)])
	return n * int64(d.starts[node]) / threads, n * int64(d.starts[node+1]) / threads
}
