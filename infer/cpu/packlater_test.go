package cpu_test

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"m40-llm/infer/cpu"
	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
)

// packingLater packs some weights behind every run.
type packingLater struct {
	device.Device
	released int // bytes of views
	parts    int // that they were released in
}

func openPackingLater(threads int, path string) (*packingLater, error) {
	d, err := cpu.OpenWith(cpu.Options{Threads: threads, Path: path})
	if err == nil {
		d.(device.Packer).PackLater()
	}
	return &packingLater{Device: d}, err
}

func (d *packingLater) Compile(p *device.Program) (device.Executable, error) {
	e, err := d.Device.Compile(p)
	return packingExecutable{e, d}, err
}

func (d *packingLater) pack(limit time.Duration) (int64, error) {
	return d.Device.(device.Packer).Pack(limit, func(view []byte) { d.released, d.parts = d.released+len(view), d.parts+1 })
}

type packingExecutable struct {
	device.Executable
	device *packingLater
}

func (e packingExecutable) Run(b *device.Batch) error {
	err := e.Executable.Run(b)
	_, packErr := e.device.pack(time.Microsecond)
	return errors.Join(err, packErr)
}

// TestPackReplacesViewsPieceByPiece packs two weights, one of several pieces, and computes with both in between.
func TestPackReplacesViewsPieceByPiece(t *testing.T) {
	const rows, cols = 34000, 256 // 9.2 MB
	rng := rand.New(rand.NewPCG(1, 2))
	weights := func(rows int) []byte {
		data := make([]byte, rows*gguf.Q8_0.RowBytes(cols))
		for i := range data {
			data[i] = byte(rng.UintN(256))
			if i%34 == 1 {
				data[i] = 0x20 // the upper byte of a scale
			}
		}
		return data
	}
	large, small := weights(rows), weights(19)
	x := normal(rng, 2*cols)
	compute := func(d device.Device) (device.Executable, func() []float32) {
		p := device.NewProgram(2, 2)
		y, z := alloc(t, d, 2, rows), alloc(t, d, 2, 19)
		in := feed(t, d, p, cols, x)
		p.MatMul(y, upload(t, d, gguf.Q8_0, rows, cols, large), in)
		p.MatMul(z, upload(t, d, gguf.Q8_0, 19, cols, small), in)
		return compile(t, d, p), func() []float32 { return append(read(t, d, y, 1), read(t, d, z, 1)...) }
	}
	for _, path := range cpu.Paths() {
		t.Run(path, func(t *testing.T) {
			atOnce, err := cpu.OpenWith(cpu.Options{Threads: 2, Path: path})
			if err != nil {
				t.Fatal(err)
			}
			defer atOnce.Close()
			e, results := compute(atOnce)
			run(t, e, upTo(0, 2))
			want := results()

			d, err := openPackingLater(2, path)
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			e, results = compute(d)
			before, err := d.pack(0)
			if err != nil || before <= int64(len(large)) {
				t.Fatalf("at first %d bytes are missing, %v", before, err)
			}
			states := 0
			for missing := before; ; {
				run(t, e, upTo(0, 2))
				if !sameBits(results(), want) {
					t.Fatalf("with %d of %d bytes missing, results are not those of weights that are packed at once", missing, before)
				}
				if missing == 0 {
					break
				}
				left, err := d.pack(time.Microsecond)
				if err != nil || left > missing {
					t.Fatalf("%d bytes are missing after %d, %v", left, missing, err)
				}
				if left < missing {
					states++
				}
				missing = left
			}
			if states < 2 {
				t.Errorf("all was packed in %d calls", states)
			}
			if want := len(large) + len(small); d.released != want || d.parts != 3 {
				t.Errorf("%d bytes of views were released in %d parts, want %d bytes in 3: two of the large weight", d.released, d.parts, want)
			}
		})
	}
}

func TestPackOfAFileThatIsCutShort(t *testing.T) {
	const rows, cols = 4096, 256
	file, data := mapFile(t, int64(rows*gguf.Q8_0.RowBytes(cols)))
	d, err := openPackingLater(2, cpu.Paths()[0])
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	upload(t, d, gguf.Q8_0, rows, cols, data)
	if err := file.Truncate(5000); err != nil {
		t.Fatal(err)
	}
	if _, err := d.pack(time.Minute); !errors.Is(err, device.ErrUnreadable) {
		t.Errorf("got %v, want one that matches ErrUnreadable", err)
	}
}
