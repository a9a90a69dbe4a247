package resident

import (
	"slices"
	"testing"
	"unsafe"

	"m40-llm/cudakern"
)

// The structs of ring.cuh and barrier.cuh are the same in both languages.
func TestTheHostAndKernelsAgreeOnTheLayoutOfRings(t *testing.T) {
	var h ringHost
	var d ringDevice
	var c ringCommand
	var r ringResult
	sizes := []uintptr{
		barrierBytes, uintptr(orderBytes), unsafe.Sizeof(h), unsafe.Sizeof(d), unsafe.Sizeof(c), unsafe.Sizeof(r), ringHeaderBytes,
		unsafe.Offsetof(h.slots), unsafe.Offsetof(h.commandBytes), unsafe.Offsetof(h.resultBytes), unsafe.Offsetof(h.launch),
		unsafe.Offsetof(h.first), unsafe.Offsetof(h.most), unsafe.Offsetof(h.idle), unsafe.Offsetof(h.cancel), unsafe.Offsetof(h.leave),
		unsafe.Offsetof(d.beat), unsafe.Offsetof(d.at), unsafe.Offsetof(d.next),
		unsafe.Offsetof(d.reason), unsafe.Offsetof(d.left),
		unsafe.Offsetof(c.number), unsafe.Offsetof(c.kind), unsafe.Offsetof(c.program), unsafe.Offsetof(c.words), unsafe.Offsetof(c.args), unsafe.Sizeof(c),
		unsafe.Offsetof(r.number), unsafe.Offsetof(r.state), unsafe.Offsetof(r.words), unsafe.Offsetof(r.args), unsafe.Sizeof(r),
		uintptr(resultDone), uintptr(resultCancelled), uintptr(resultFailed), leftBroken,
	}
	e := device(t)
	got := make([]uint32, len(sizes))
	at := e.Buffer(4 * len(got))
	e.Must(e.Kernel("residenttest", "resident_layout").Launch(e.Stream, cudakern.Dim3{}, cudakern.Dim3{X: 32}, 0, at))
	e.Must(e.Stream.Download(wordBytes(got), at))
	e.Must(e.Stream.Sync())
	var want []uint32
	for _, n := range sizes {
		want = append(want, uint32(n))
	}
	if !slices.Equal(got, want) {
		t.Errorf("kernels have the layout %v, the host %v", got, want)
	}
}
