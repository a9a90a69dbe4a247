package cpu_test

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"m40-llm/infer/cpu"
	"m40-llm/infer/cpu/host"
	"m40-llm/infer/device"
	"m40-llm/infer/device/devicetest"
	"m40-llm/infer/fixtures"
	"m40-llm/infer/gguf"
)

// allowed returns the processors that a thread of this process may use.
func allowed(t *testing.T, thread int) (processors []int) {
	t.Helper()
	set := unix.NewCPUSet(8192)
	if err := unix.SchedGetaffinityDynamic(thread, set); err != nil {
		return nil // it has ended
	}
	for p := range 8192 {
		if set.IsSet(p) {
			processors = append(processors, p)
		}
	}
	return processors
}

// threadsOn counts the threads of this process that may use these processors alone.
func threadsOn(t *testing.T, processors []int) (n int) {
	t.Helper()
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		var id int
		fmt.Sscan(task.Name(), &id)
		if slices.Equal(allowed(t, id), processors) {
			n++
		}
	}
	return n
}

// preferredBytes returns how many bytes of this process's memory are to be on a node.
func preferredBytes(t *testing.T, node int) (bytes int64) {
	t.Helper()
	file, err := os.Open("/proc/self/numa_maps")
	if err != nil {
		fixtures.Skip(t, "this system does not say in /proc/self/numa_maps where memory is")
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if !strings.HasPrefix(fields[1], "prefer") || !strings.HasSuffix(fields[1], fmt.Sprint(":", node)) {
			continue
		}
		for _, f := range fields {
			var pages int64
			if n, _ := fmt.Sscanf(f, "anon=%d", &pages); n == 1 {
				bytes += pages * int64(os.Getpagesize())
			}
		}
	}
	return bytes
}

// The nodes of this test are two processors of a machine that has one node, whose memory is that of both.
func TestThreadsAndWeightsAreDividedAmongNodes(t *testing.T) {
	here := allowed(t, 0)
	if len(here) < 2 {
		fixtures.Skip(t, "this machine has one processor")
	}
	nodes := []host.Node{{Processors: here[:1]}, {Processors: here[1:2]}}
	const outs, cols, experts = 8000, 256, 3
	rng := rand.New(rand.NewPCG(1, 2))
	type weight struct {
		typ  gguf.Type
		rows int
		data []byte
	}
	var weights []weight
	for _, w := range []weight{{typ: gguf.Q4_0, rows: outs}, {typ: gguf.Q8_0, rows: outs / 2}, {typ: gguf.F32, rows: outs / 4}, {typ: gguf.Q8_0, rows: experts * outs / 4}} {
		w.data = devicetest.RandomWeight(rng, w.typ, w.rows, cols, 1)
		weights = append(weights, w)
	}
	x := normal(rng, 3*cols)
	compute := func(d device.Device) (device.Executable, func() []float32) {
		p := device.NewProgram(3, 3)
		in, routes := feed(t, d, p, cols, x), feed(t, d, p, 2, []float32{2, 1, 0, 1, 2, 1})
		var results []device.Tensor
		for _, w := range weights[:3] {
			y := alloc(t, d, 3, w.rows)
			p.MatMul(y, upload(t, d, w.typ, w.rows, cols, w.data), in)
			results = append(results, y)
		}
		y := alloc(t, d, 3, outs/4)
		p.ExpertMatMul(y, upload(t, d, weights[3].typ, weights[3].rows, cols, weights[3].data), in, routes, experts)
		results = append(results, y)
		return compile(t, d, p), func() (all []float32) {
			for _, y := range results {
				for row := range 3 {
					all = append(all, read(t, d, y, row)...)
				}
			}
			return all
		}
	}

	alike, err := cpu.Open(1)
	if err != nil {
		t.Fatal(err)
	}
	defer alike.Close()
	e, results := compute(alike)
	run(t, e, upTo(0, 3))
	want := results()

	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for _, c := range []struct {
		name    string
		threads int
		later   bool
	}{
		{"weights packed before", 4, false},
		{"weights packed later", 4, true},
		{"32 threads", 32, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := preferredBytes(t, 0)
			d, err := cpu.OpenWith(cpu.Options{Threads: c.threads, Nodes: nodes})
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			if name := d.Info().Name; !strings.HasSuffix(name, ", 2 NUMA nodes") {
				fixtures.Skip(t, "this system lets no program place its memory; the device is "+name)
			}
			packer := d.(device.Packer)
			if c.later {
				packer.PackLater()
			}
			e, results := compute(d)
			for missing := int64(1); missing > 0; {
				if missing, err = packer.Pack(time.Microsecond, func([]byte) {}); err != nil {
					t.Fatal(err)
				}
				run(t, e, upTo(0, 3))
				if !sameBits(results(), want) {
					t.Fatalf("with %d bytes to be packed, results on two nodes are not those on one", missing)
				}
			}
			// The weights have 1.2, 1.1, 2.0 and 1.6 MB, and pages at their ends may be shared with others.
			if placed := preferredBytes(t, 0) - before; placed < 4_200_000 || placed > 4_600_000 {
				t.Errorf("%d bytes of weights were placed on nodes, want about 4.3 million", placed)
			}
			if first, second := threadsOn(t, here[:1]), threadsOn(t, here[1:2]); first != c.threads/2-1 || second != c.threads/2 {
				t.Errorf("besides this thread %d threads stay on the first node and %d on the second, want %d and %d", first, second, c.threads/2-1, c.threads/2)
			}
			if now := allowed(t, 0); !slices.Equal(now, here) {
				t.Errorf("the thread that ran steps may use the processors %v, want %v as before", now, here)
			}
		})
	}
}
