package host

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
)

func TestNodes(t *testing.T) {
	for _, c := range []struct {
		name    string
		lists   map[string]string // of processors, by directory
		allowed []int             // nil: all
		want    []Node
	}{
		{"one socket", map[string]string{"node0": "0-3\n"}, nil, []Node{{0, []int{0, 1, 2, 3}}}},
		{"two sockets, each with the second half of its threads behind the other", map[string]string{"node0": "0-1,4-5\n", "node1": "2-3,6-7\n"}, nil,
			[]Node{{0, []int{0, 1, 4, 5}}, {1, []int{2, 3, 6, 7}}}},
		{"numbers are in order and have gaps", map[string]string{"node10": "3\n", "node2": "0-2\n"}, nil, []Node{{2, []int{0, 1, 2}}, {10, []int{3}}}},
		{"a node of memory alone", map[string]string{"node0": "0-1\n", "node1": "\n"}, nil, []Node{{0, []int{0, 1}}}},
		{"processors that the process may not use are left out", map[string]string{"node0": "0-1\n", "node1": "2-3\n"}, []int{1, 2}, []Node{{0, []int{1}}, {1, []int{2}}}},
		{"and so is a node without others", map[string]string{"node0": "0-1\n", "node1": "2-3\n"}, []int{2, 3}, []Node{{1, []int{2, 3}}}},
		{"other files, and lists that are none", map[string]string{"node0": "0-1,x,3-,-4,99999999\n", "power": "0\n", "nodes": "7\n"}, nil, []Node{{0, []int{0, 1}}}},
		{"no files", nil, nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, list := range c.lists {
				if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, name, "cpulist"), []byte(list), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			mayUse := func(p int) bool { return c.allowed == nil || slices.Contains(c.allowed, p) }
			if got := readNodes(dir, mayUse); !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
	if _, err := os.Stat("/sys/devices/system/node/node0/cpulist"); err == nil && len(Nodes()) == 0 {
		t.Error("this machine has no node with a processor that this process may use")
	}
}

func TestDivide(t *testing.T) {
	nodes := func(processors ...int) (all []Node) {
		for id, n := range processors {
			all = append(all, Node{id, make([]int, n)})
		}
		return all
	}
	for _, c := range []struct {
		name    string
		nodes   []Node
		threads int
		want    []int // threads of each node
	}{
		{"two sockets have half of the threads", nodes(16, 16), 32, []int{16, 16}},
		{"fewer threads than processors too", nodes(16, 16), 7, []int{4, 3}},
		{"four parts of two sockets", nodes(8, 8, 8, 8), 32, []int{8, 8, 8, 8}},
		{"as many as the share of the processors", nodes(6, 2), 8, []int{6, 2}},
		{"at least one", nodes(30, 1, 1), 3, []int{1, 1, 1}},
		{"at least one in the middle too", nodes(30, 1, 30), 12, []int{6, 1, 5}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := Divide(c.nodes, c.threads)
			var got []int
			next := int64(0)
			for node := range d.Nodes {
				first, last := d.Threads(node)
				got = append(got, last-first)
				// Thread k of n has items 1000·k/n … 1000·(k+1)/n - 1.
				begin, end := d.Part(node, 1000)
				if begin != next || end != int64(1000*last/c.threads) {
					t.Errorf("node %d has items %d to %d, want %d to %d", node, begin, end, next, 1000*last/c.threads)
				}
				next = end
			}
			if fmt.Sprint(got) != fmt.Sprint(c.want) || next != 1000 {
				t.Errorf("nodes have %v threads and %d of 1000 items, want %v", got, next, c.want)
			}
		})
	}
}
