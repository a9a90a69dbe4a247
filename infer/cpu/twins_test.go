package cpu_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"testing"

	"m40-llm/infer/cpu"
	"m40-llm/infer/device"
	"m40-llm/infer/device/devicetest"
	"m40-llm/infer/gguf"
)

func TestPathsOfTheSameOrderMultiplyOddSizesToTheSameBits(t *testing.T) {
	for _, path := range cpu.Paths() {
		own := twins(path)
		slowest := own[len(own)-1]
		if path == slowest {
			continue
		}
		t.Run(path, func(t *testing.T) {
			for _, typ := range cpu.WeightTypes() {
				for _, scale := range []float64{1, 1e-6} { // units of blocks are normal or denormal halves
					t.Run(fmt.Sprintf("%s weights of about %g as on %s", typ, scale, slowest), func(t *testing.T) {
						for _, outs := range []int{1, 35} {
							for _, rows := range []int{1, 7} {
								got, want := product(t, path, typ, rows, outs, scale), product(t, slowest, typ, rows, outs, scale)
								if !sameBits(got, want) {
									t.Fatalf("%d rows of %d outputs differ: %v, on %s %v", rows, outs, got, slowest, want)
								}
							}
						}
					})
				}
			}
		})
	}
}

// product returns the outputs of random rows times a random weight.
func product(t *testing.T, path string, typ gguf.Type, rows, outs int, scale float64) (all []float32) {
	d, err := cpu.OpenWith(cpu.Options{Threads: 1, Path: path})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	rng := rand.New(rand.NewPCG(15, uint64(rows*100+outs)))
	cols := width(typ, 33)
	p := device.NewProgram(rows, rows)
	y := alloc(t, d, rows, outs)
	p.MatMul(y, upload(t, d, typ, outs, cols, devicetest.RandomWeight(rng, typ, outs, cols, scale)), feed(t, d, p, cols, normal(rng, rows*cols)))
	run(t, compile(t, d, p), upTo(0, rows))
	for r := range rows {
		all = append(all, read(t, d, y, r)...)
	}
	return all
}

func TestEveryHalfIsMultipliedAsTheNumberThatItIs(t *testing.T) {
	const halves = 1 << 16
	var data []byte
	for h := range halves {
		data = append(data, byte(h), byte(h>>8))
	}
	onEveryPath(t, 1, func(t *testing.T, d device.Device) {
		p := device.NewProgram(1, 1)
		y := alloc(t, d, 1, halves)
		p.MatMul(y, upload(t, d, gguf.F16, halves, 1, data), feed(t, d, p, 1, []float32{1}))
		run(t, compile(t, d, p), upTo(0, 1))
		for h, got := range read(t, d, y, 0) {
			want := gguf.F16ToF32(uint16(h))
			if got != want && !(math.IsNaN(float64(got)) && math.IsNaN(float64(want))) {
				t.Fatalf("the half %#04x is %g, want %g", h, got, want)
			}
		}
	})
}

// make test-x86 names the path of each processor that it emulates.
func TestTheFastestPathIsThatOfTheProcessor(t *testing.T) {
	want := os.Getenv("M40_LLM_FASTEST_PATH")
	if want == "" {
		t.Skip("no path is named")
	}
	if got := cpu.Paths()[0]; got != want {
		t.Errorf("the fastest path is %s, want %s; all: %v", got, want, cpu.Paths())
	}
}
