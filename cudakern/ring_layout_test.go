package cudakern

import (
	"runtime"
	"slices"
	"testing"
	"unsafe"

	"m40-llm/cudakern/emutest"
)

// The structs of ring.cuh and barrier.cuh are the same in both languages.
func TestTheHostAndKernelsAgreeOnTheLayoutOfRings(t *testing.T) {
	var h ringHost
	var d ringDevice
	var c ringCommand
	var r ringResult
	sizes := []uintptr{
		BarrierBytes, uintptr(OrderBytes), unsafe.Sizeof(h), unsafe.Sizeof(d), unsafe.Sizeof(c), unsafe.Sizeof(r), ringHeaderBytes,
		unsafe.Offsetof(h.slots), unsafe.Offsetof(h.commandBytes), unsafe.Offsetof(h.resultBytes), unsafe.Offsetof(h.launch),
		unsafe.Offsetof(h.first), unsafe.Offsetof(h.most), unsafe.Offsetof(h.idle), unsafe.Offsetof(h.cancel), unsafe.Offsetof(h.leave),
		unsafe.Offsetof(d.beat), unsafe.Offsetof(d.at), unsafe.Offsetof(d.next),
		unsafe.Offsetof(d.reason), unsafe.Offsetof(d.left),
		unsafe.Offsetof(c.number), unsafe.Offsetof(c.kind), unsafe.Offsetof(c.program), unsafe.Offsetof(c.words), unsafe.Offsetof(c.args), unsafe.Sizeof(c),
		unsafe.Offsetof(r.number), unsafe.Offsetof(r.state), unsafe.Offsetof(r.words), unsafe.Offsetof(r.args), unsafe.Sizeof(r),
		uintptr(ResultDone), uintptr(ResultCancelled), uintptr(ResultFailed), leftBroken,
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	driver, err := Load(emutest.Library(t))
	if err != nil {
		t.Fatal(err)
	}
	context, err := driver.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	defer context.Close()
	got := make([]uint32, len(sizes))
	try := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	stream, err := context.NewStream(PriorityLow)
	try(err)
	at, err := context.Alloc(int64(4 * len(got)))
	try(err)
	kernel, err := context.kernel("residenttest", "resident_layout")
	try(err)
	try(kernel.Launch(stream, Dim3{}, Dim3{X: 32}, 0, at))
	try(stream.Download(wordBytes(got), at))
	try(stream.Sync())
	var want []uint32
	for _, n := range sizes {
		want = append(want, uint32(n))
	}
	if !slices.Equal(got, want) {
		t.Errorf("kernels have the layout %v, the host %v", got, want)
	}
}
