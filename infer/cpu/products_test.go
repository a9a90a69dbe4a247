package cpu_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"m40-llm/infer/cpu"
	"m40-llm/infer/device"
	"m40-llm/infer/device/devicetest"
	"m40-llm/infer/gguf"
)

// quantised builds a weight whose blocks have scale 1 and the values that value
// gives.
func quantised(typ gguf.Type, outs, cols int, value func(out, i int) int) (data []byte) {
	for o := range outs {
		for b := 0; b < cols; b += 32 {
			data = binary.LittleEndian.AppendUint16(data, gguf.F32ToF16(1))
			if typ == gguf.Q8_0 {
				for i := range 32 {
					data = append(data, byte(int8(value(o, b+i))))
				}
				continue
			}
			for i := range 16 {
				data = append(data, byte(value(o, b+i)+8)|byte(value(o, b+i+16)+8)<<4)
			}
		}
	}
	return data
}

// Whole numbers below 2^24 leave float32 no room for an excuse: instructions that
// saturate, or take signed for unsigned, would show.
func TestQuantisedProductsAreExactIntegers(t *testing.T) {
	for _, c := range []struct {
		name   string
		typ    gguf.Type
		weight func(rng *rand.Rand) int
		x      func(rng *rand.Rand) float32
	}{
		{"the lowest Q8_0 weight times the highest activation", gguf.Q8_0, always(-128), alwaysX(127)},
		{"the lowest Q8_0 weight times the lowest activation", gguf.Q8_0, always(-128), alwaysX(-127)},
		{"the highest Q8_0 weight times the highest activation", gguf.Q8_0, always(127), alwaysX(127)},
		{"the lowest Q4_0 weight times the highest activation", gguf.Q4_0, always(-8), alwaysX(127)},
		{"the highest Q4_0 weight times the lowest activation", gguf.Q4_0, always(7), alwaysX(-127)},
		{"random Q8_0 weights", gguf.Q8_0, func(rng *rand.Rand) int { return rng.IntN(256) - 128 }, randomX},
		{"random Q4_0 weights", gguf.Q4_0, func(rng *rand.Rand) int { return rng.IntN(16) - 8 }, randomX},
	} {
		t.Run(c.name, func(t *testing.T) {
			onEveryPath(t, 2, func(t *testing.T, d device.Device) {
				for _, cols := range []int{32, 64, 96, 320} {
					for _, outs := range []int{1, 3, 4, 9} {
						for _, rows := range []int{1, 2, 3, 4, 7} {
							rng := rand.New(rand.NewPCG(7, 8))
							weights := make([]int, outs*cols)
							for i := range weights {
								weights[i] = c.weight(rng)
							}
							x := make([]float32, rows*cols)
							for i := range x {
								x[i] = c.x(rng)
								if i%32 == 5 {
									x[i] = 127 // fixes the scale of the block at 1
								}
							}
							p := device.NewProgram(rows, rows)
							y := alloc(t, d, rows, outs)
							data := quantised(c.typ, outs, cols, func(o, i int) int { return weights[o*cols+i] })
							p.MatMul(y, upload(t, d, c.typ, outs, cols, data), feed(t, d, p, cols, x))
							run(t, compile(t, d, p), upTo(0, rows))
							for r := range rows {
								for o, got := range read(t, d, y, r) {
									want := 0
									for i := range cols {
										want += weights[o*cols+i] * int(x[r*cols+i])
									}
									if got != float32(want) {
										t.Fatalf("%d columns, row %d of %d, output %d of %d: got %v, want %d", cols, r, rows, o, outs, got, want)
									}
								}
							}
						}
					}
				}
			})
		})
	}
}

// The largest sums of super-blocks: all bits set, then none, against activations at
// either end. The values come from the dequantised weight.
func TestProductsOfSuperBlocksAreExactAtTheirExtremes(t *testing.T) {
	for _, typ := range []gguf.Type{gguf.Q4_K, gguf.Q5_K, gguf.Q6_K} {
		for _, fill := range []byte{0x00, 0xff, 0x7f, 0x80, 0x0f, 0xf0} {
			for _, x := range []float32{127, -127} {
				t.Run(fmt.Sprintf("%s bytes of %#02x times %g", typ, fill, x), func(t *testing.T) {
					onEveryPath(t, 1, func(t *testing.T, d device.Device) {
						_, size := typ.Block()
						block := bytes.Repeat([]byte{fill}, int(size))
						unit := gguf.F32ToF16(1. / 64) // with scales of 6 or 8 bits, sums stay below 2^24 units
						if typ == gguf.Q6_K {
							binary.LittleEndian.PutUint16(block[208:], unit)
						} else {
							binary.LittleEndian.PutUint16(block, unit)
							binary.LittleEndian.PutUint16(block[2:], unit)
						}
						w := make([]float32, 256)
						if err := gguf.Dequantize(typ, block, w); err != nil {
							t.Fatal(err)
						}
						want, row := 0.0, make([]float32, 256)
						for i := range w {
							row[i] = x
							want += float64(w[i]) * float64(x)
						}
						p := device.NewProgram(1, 1)
						y := alloc(t, d, 1, 1)
						p.MatMul(y, upload(t, d, typ, 1, 256, block), feed(t, d, p, 256, row))
						run(t, compile(t, d, p), upTo(0, 1))
						if got := read(t, d, y, 0)[0]; got != float32(want) {
							t.Errorf("got %v, want %v", got, want)
						}
					})
				})
			}
		}
	}
}

func always(v int) func(*rand.Rand) int          { return func(*rand.Rand) int { return v } }
func alwaysX(v float32) func(*rand.Rand) float32 { return func(*rand.Rand) float32 { return v } }
func randomX(rng *rand.Rand) float32             { return float32(rng.IntN(255) - 127) }

// Activations are rounded to the nearest of 255 steps of a 127th of the largest of
// their 32, ties to even. With one weight of 1 a product shows a single one.
func TestActivationsAreRoundedToTheNearestStep(t *testing.T) {
	onEveryPath(t, 1, func(t *testing.T, d device.Device) {
		x := []float32{127, 0.4, 0.5, 0.6, 1.5, 2.5, -0.5, -0.51, -1.5, -127, 126.4, 126.5, 0, 3, -3, 62.49}
		want := []float32{127, 0, 0, 1, 2, 2, 0, -1, -2, -127, 126, 126, 0, 3, -3, 62}
		x = append(x, make([]float32, 32-len(x))...)
		p := device.NewProgram(1, 1)
		y := alloc(t, d, 1, 32)
		one := quantised(gguf.Q8_0, 32, 32, func(o, i int) int {
			if o == i {
				return 1
			}
			return 0
		})
		p.MatMul(y, upload(t, d, gguf.Q8_0, 32, 32, one), feed(t, d, p, 32, x))
		run(t, compile(t, d, p), upTo(0, 1))
		got := read(t, d, y, 0)
		for i, w := range want {
			if got[i] != w {
				t.Errorf("%v became %v, want %v", x[i], got[i], w)
			}
		}
	})
}

// width returns n, rounded up to whole blocks of typ.
func width(typ gguf.Type, n int) int {
	elements, _ := typ.Block()
	return (n + int(elements) - 1) / int(elements) * int(elements)
}

func TestWeightsMayLieAtAnyAddress(t *testing.T) {
	onEveryPath(t, 2, func(t *testing.T, d device.Device) {
		for _, typ := range cpu.WeightTypes() {
			t.Run(typ.String(), func(t *testing.T) {
				const rows, outs = 5, 9
				cols := width(typ, 96)
				rng := rand.New(rand.NewPCG(9, 10))
				data := devicetest.RandomWeight(rng, typ, outs, cols, 1)
				x := normal(rng, rows*cols)
				var want [][]float32
				for shift := range 5 {
					moved := append(make([]byte, shift), data...)[shift:]
					p := device.NewProgram(rows, rows)
					w := upload(t, d, typ, outs, cols, moved)
					y, e := alloc(t, d, rows, outs), alloc(t, d, rows, cols)
					p.MatMul(y, w, feed(t, d, p, cols, x))
					p.Embed(e, w)
					run(t, compile(t, d, p), upTo(0, rows))
					for r := range rows {
						got := append(read(t, d, y, r), read(t, d, e, r)...)
						if shift == 0 {
							want = append(want, got)
						} else if !sameBits(got, want[r]) {
							t.Fatalf("row %d differs %d bytes further on", r, shift)
						}
					}
				}
			})
		}
	})
}

// A number that is not finite must reach the logits, where the engine looks for it.
func TestWhatIsNotFiniteShowsInTheProduct(t *testing.T) {
	onEveryPath(t, 1, func(t *testing.T, d device.Device) {
		for _, typ := range cpu.WeightTypes() {
			cols := width(typ, 96)
			for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
				for _, at := range []int{0, 31, 40, 95} {
					t.Run(fmt.Sprintf("%v at %d under %s weights", bad, at, typ), func(t *testing.T) {
						rng := rand.New(rand.NewPCG(11, 12))
						x := normal(rng, 2*cols)
						x[at] = float32(bad)
						p := device.NewProgram(2, 2)
						y := alloc(t, d, 2, 5)
						p.MatMul(y, upload(t, d, typ, 5, cols, devicetest.RandomWeight(rng, typ, 5, cols, 1)), feed(t, d, p, cols, x))
						run(t, compile(t, d, p), upTo(0, 2))
						for o, v := range read(t, d, y, 0) {
							if !math.IsNaN(float64(v)) && !math.IsInf(float64(v), 0) {
								t.Errorf("output %d is %v", o, v)
							}
						}
						for o, v := range read(t, d, y, 1) {
							if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
								t.Errorf("output %d of the other row is %v", o, v)
							}
						}
					})
				}
			}
		}
	})
}

func TestRowsOfZerosAndOfTinyNumbersAreZero(t *testing.T) {
	onEveryPath(t, 1, func(t *testing.T, d device.Device) {
		for _, v := range []float32{0, float32(math.Copysign(0, -1)), 1e-45, -1e-40} {
			x := make([]float32, 64)
			for i := range x {
				x[i] = v
			}
			rng := rand.New(rand.NewPCG(13, 14))
			p := device.NewProgram(1, 1)
			y := alloc(t, d, 1, 3)
			p.MatMul(y, upload(t, d, gguf.Q8_0, 3, 64, devicetest.RandomWeight(rng, gguf.Q8_0, 3, 64, 1)), feed(t, d, p, 64, x))
			run(t, compile(t, d, p), upTo(0, 1))
			for o, got := range read(t, d, y, 0) {
				if got != 0 {
					t.Errorf("output %d of a row of %g is %g", o, v, got)
				}
			}
		}
	})
}
