package gguf_test

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"m40-llm/infer/fixtures"
	"m40-llm/infer/gguf"
)

// TestDequantizeReference compares with blocks whose values two builds of the ggml
// library agree on, bit for bit.
func TestDequantizeReference(t *testing.T) {
	read := func(name string) []byte {
		data, err := os.ReadFile(fixtures.Path(t, "quants", "blocks", name))
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	var index []struct {
		Type     string
		Number   uint32 `json:"ggml_type"`
		Elements uint64 `json:"block_elements"`
		Bytes    uint64 `json:"block_bytes"`
	}
	if err := json.Unmarshal(read("index.json"), &index); err != nil {
		t.Fatal(err)
	}
	compared := 0
	for _, want := range index {
		typ := gguf.Type(want.Number)
		t.Run(want.Type+" has the reference's name and block size", func(t *testing.T) {
			if elements, bytes := typ.Block(); typ.String() != want.Type || elements != want.Elements || bytes != want.Bytes {
				t.Errorf("type %d is %s with %d elements in %d bytes, want %s with %d in %d",
					want.Number, typ, elements, bytes, want.Type, want.Elements, want.Bytes)
			}
		})
		values := read(want.Type + ".f32")
		got := make([]float32, len(values)/4)
		if err := gguf.Dequantize(typ, read(want.Type+".bin"), got); err != nil {
			t.Logf("%s is not compared: %v", want.Type, err)
			continue
		}
		compared++
		t.Run(want.Type+" has the reference's values, bit for bit", func(t *testing.T) {
			for i, v := range got {
				if g, w := math.Float32bits(v), binary.LittleEndian.Uint32(values[4*i:]); g != w {
					t.Fatalf("value %d is %#08x (%g), want %#08x (%g)", i, g, v, w, math.Float32frombits(w))
				}
			}
		})
	}
	if compared != len(index) {
		t.Errorf("%d types were compared, want all %d", compared, len(index))
	}
}

func TestDequantize(t *testing.T) {
	block := func(scale uint16, rest ...byte) []byte {
		return append(binary.LittleEndian.AppendUint16(nil, scale), rest...)
	}
	q8 := make([]byte, 32)
	q8[0], q8[1], q8[31] = 1, 0x80, 127 // 1, -128 and 127
	q4 := make([]byte, 16)
	q4[0], q4[15] = 0xf0, 0x09 // values 0 and 15 as elements 0 and 16; 9 and 0 as 15 and 31
	for _, c := range []struct {
		name string
		typ  gguf.Type
		src  []byte
		want map[int]float32
	}{
		{"F32 is read as it is", gguf.F32, []byte{0, 0, 0xc0, 0xbf}, map[int]float32{0: -1.5}},
		{"F16 is half precision", gguf.F16, []byte{0, 0xbe}, map[int]float32{0: -1.5}},
		{"BF16 is the upper half of a float32", gguf.BF16, []byte{0xc0, 0xbf}, map[int]float32{0: -1.5}},
		{"Q8_0 is a scale times signed bytes", gguf.Q8_0, block(0x4000, q8...), map[int]float32{0: 2, 1: -256, 2: 0, 31: 254}},
		{"Q4_0 is a scale times four bits less 8, low halves first", gguf.Q4_0, block(0x3800, q4...), map[int]float32{0: -4, 16: 3.5, 15: 0.5, 31: -4}},
	} {
		t.Run(c.name, func(t *testing.T) {
			elements, _ := c.typ.Block()
			dst := make([]float32, elements)
			if err := gguf.Dequantize(c.typ, c.src, dst); err != nil {
				t.Fatal(err)
			}
			for i, want := range c.want {
				if dst[i] != want {
					t.Errorf("element %d is %g, want %g", i, dst[i], want)
				}
			}
		})
	}
	for _, c := range []struct {
		name string
		typ  gguf.Type
		src  int
		dst  int
		want string
	}{
		{"a type without a decoder is named, with those that have one", gguf.Q1_0, 18, 128, "weights of type Q1_0, only with F32, F16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ2_XXS, IQ2_XS, IQ3_XXS, IQ1_S, IQ4_NL, IQ3_S, IQ2_S, IQ4_XS, IQ1_M, BF16, TQ1_0, TQ2_0, MXFP4 and NVFP4"},
		{"activations of eight bits are no weights", gguf.Q8_1, 36, 32, "weights of type Q8_1, only with"},
		{"an unknown type is named", gguf.Type(77), 1, 1, "type 77"},
		{"a part of a block is refused", gguf.Q8_0, 34, 16, "34 bytes are not 16 elements of type Q8_0"},
		{"too few bytes are refused", gguf.Q8_0, 33, 32, "33 bytes are not 32 elements"},
		{"too many bytes are refused", gguf.F16, 6, 2, "6 bytes are not 2 elements"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := gguf.Dequantize(c.typ, make([]byte, c.src), make([]float32, c.dst))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got error %v, want one that says %q", err, c.want)
			}
		})
	}
}

// publishedSums are the SHA-256 of the values, as float32, that version 0.19.0 of the Python package gguf,
// gguf.quants.dequantize, gives for the blocks of TestDequantizePublished.
var publishedSums = map[gguf.Type]string{
	gguf.TQ1_0: "e1d8f052503b1b3d063531641d5277667713fc728882073960d3516d7f1aa809",
	gguf.TQ2_0: "c47792622686bb20a563533392d5ece47fb2e73fd7a4765e8c25228d25406698",
	gguf.NVFP4: "ecd09158ee8a1ab52aa44092f18fc644a452da4d949050cd483592cbedad0c1b",
}

func TestDequantizePublished(t *testing.T) {
	for typ, want := range publishedSums {
		t.Run(typ.String()+" has the values of the published package, bit for bit", func(t *testing.T) {
			elements, size := typ.Block()
			src, dst := make([]byte, 512*size), make([]float32, 512*elements)
			rng := rand.New(rand.NewPCG(16, uint64(typ)))
			for i := range src {
				src[i] = byte(rng.Uint32())
			}
			if typ != gguf.NVFP4 { // which has scales of one byte
				for b := range 512 {
					src[(b+1)*int(size)-1] &^= 0x40 // keeps the scale, of half precision, below 2
				}
			}
			if err := gguf.Dequantize(typ, src, dst); err != nil {
				t.Fatal(err)
			}
			values := sha256.New()
			if err := binary.Write(values, binary.LittleEndian, dst); err != nil {
				t.Fatal(err)
			}
			if got := hex.EncodeToString(values.Sum(nil)); got != want {
				t.Errorf("got values with the SHA-256 %s, want %s", got, want)
			}
		})
	}
}

func TestTernaryToQ2_K(t *testing.T) {
	for _, typ := range []gguf.Type{gguf.TQ1_0, gguf.TQ2_0} {
		t.Run("weights of type "+typ.String()+" have the same values in Q2_K", func(t *testing.T) {
			const blocks = 16
			_, size := typ.Block()
			src, want := make([]byte, blocks*size), make([]float32, blocks*256)
			rng := rand.New(rand.NewPCG(11, 11))
			for i := range src {
				src[i] = byte(rng.Uint32())
			}
			if err := gguf.SetRandomScale(typ, src, -0.7); err != nil {
				t.Fatal(err)
			}
			if err := gguf.Dequantize(typ, src, want); err != nil {
				t.Fatal(err)
			}
			data, got := make([]byte, gguf.Q2_K.RowBytes(len(want))), make([]float32, len(want))
			gguf.TernaryToQ2_K(typ, src, data)
			if err := gguf.Dequantize(gguf.Q2_K, data, got); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got, want) {
				t.Errorf("got values %v …, want %v …", got[:8], want[:8])
			}
		})
	}
}

// TestDequantizeFormulas compares types that have no reference with their definitions, written
// here one value at a time in float64.
func TestDequantizeFormulas(t *testing.T) {
	half := func(b []byte) float64 { return float64(gguf.F16ToF32(binary.LittleEndian.Uint16(b))) }
	bit := func(b []byte, i int) int { return int(b[i/8]) >> (i % 8) & 1 }
	nibble := func(b []byte, i int) int { return int(b[i%16]) >> (i / 16 * 4) & 15 }
	for _, c := range []struct {
		typ   gguf.Type
		value func(block []byte, i int) float64
	}{
		{gguf.Q4_1, func(b []byte, i int) float64 { return half(b)*float64(nibble(b[4:], i)) + half(b[2:]) }},
		{gguf.Q5_0, func(b []byte, i int) float64 { return half(b) * float64(nibble(b[6:], i)+16*bit(b[2:], i)-16) }},
		{gguf.Q5_1, func(b []byte, i int) float64 {
			return half(b)*float64(nibble(b[8:], i)+16*bit(b[4:], i)) + half(b[2:])
		}},
		{gguf.Q3_K, func(b []byte, i int) float64 {
			// Value i lies in run r of 32, of which four share the bits of 32 bytes.
			r, k := i/32, i%32
			low := int(b[32+r/4*32+k]) >> (2 * (r % 4)) & 3
			q := low + 4*bit(b[k:], r) - 4
			// The scale of part p: four bits, then two.
			p := i / 16
			four := int(b[96+p%8]) >> (4 * (p / 8)) & 15
			two := int(b[104+p%4]) >> (2 * (p / 4)) & 3
			return half(b[108:]) * float64(four+16*two-32) * float64(q)
		}},
		{gguf.TQ2_0, func(b []byte, i int) float64 {
			return half(b[64:]) * float64(int(b[i/128*32+i%32])>>(2*(i/32%4))&3-1)
		}},
		{gguf.TQ1_0, func(b []byte, i int) float64 {
			// Value i is digit n of a byte, in one of three runs of bytes.
			at, n := i%32, i/32
			if i >= 240 {
				at, n = 48+i%4, (i-240)/4
			} else if i >= 160 {
				at, n = 32+i%16, (i-160)/16
			}
			digits := float64(b[at]) / 256 * math.Pow(3, float64(n))
			return half(b[52:]) * (math.Floor(3*(digits-math.Floor(digits))) - 1)
		}},
		{gguf.NVFP4, func(b []byte, i int) float64 {
			part, k := i/16, i%16
			exponent, fraction := float64(b[part]>>3&15), float64(b[part]&7)/8
			scale := math.Exp2(exponent-7) * (1 + fraction)
			if exponent == 0 {
				scale = fraction / 64
			}
			code := b[4+8*part+k%8] >> (k / 8 * 4)
			value := []float64{0, 0.5, 1, 1.5, 2, 3, 4, 6}[code&7]
			if code&8 != 0 {
				value = -value
			}
			return scale * value
		}},
		{gguf.IQ4_NL, func(b []byte, i int) float64 {
			levels := []float64{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}
			return half(b) * levels[nibble(b[2:], i)]
		}},
	} {
		t.Run(c.typ.String()+" has the values of its definition", func(t *testing.T) {
			const blocks = 64
			elements, size := c.typ.Block()
			n, bytes := int(elements), int(size)
			src, dst := make([]byte, blocks*bytes), make([]float32, blocks*n)
			rng := rand.New(rand.NewPCG(8, 8))
			for i := range src {
				src[i] = byte(rng.Uint32())
			}
			if err := gguf.SetRandomScale(c.typ, src, 0.7); err != nil {
				t.Fatal(err)
			}
			if err := gguf.Dequantize(c.typ, src, dst); err != nil {
				t.Fatal(err)
			}
			for i, v := range dst {
				block := src[i/n*bytes:][:bytes]
				// A sum of scale and offset may cancel, so that its error is relative to them.
				if want := c.value(block, i%n); math.Abs(float64(v)-want) > 1e-6*(math.Abs(want)+1) {
					t.Fatalf("value %d is %g, want %g", i, v, want)
				}
			}
		})
	}
}

// TestRandomScale checks random weights of every type that has them.
func TestRandomScale(t *testing.T) {
	for _, typ := range gguf.Types() {
		if !typ.IsRandomizable() {
			continue
		}
		t.Run("random weights of "+typ.String()+" have about the wanted size", func(t *testing.T) {
			elements, bytes := typ.Block()
			const n = 1 << 14
			src, dst := make([]byte, n/elements*bytes), make([]float32, n)
			rng := rand.New(rand.NewPCG(9, 9))
			for i := range src {
				src[i] = byte(rng.Uint32())
			}
			if err := gguf.SetRandomScale(typ, src, 0.03); err != nil {
				t.Fatal(err)
			}
			if err := gguf.Dequantize(typ, src, dst); err != nil {
				t.Fatal(err)
			}
			squares := 0.0
			for _, v := range dst {
				squares += float64(v) * float64(v)
			}
			if size := math.Sqrt(squares / n); !(size > 0.01 && size < 0.09) {
				t.Errorf("the root of the mean square is %g, want about 0.03", size)
			}
		})
	}
}

// TestQuantizeQ8_0 bounds the error of values that are stored as Q8_0: half a step of the block's scale, and
// its rounding to half precision.
func TestQuantizeQ8_0(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	rng := rand.New(rand.NewPCG(10, 10))
	random := func(scale float64) (block []float32) {
		for range 32 {
			block = append(block, float32(rng.NormFloat64()*scale))
		}
		return block
	}
	with := func(v float32) []float32 { block := random(1); block[rng.IntN(32)] = v; return block }
	for _, c := range []struct {
		name   string
		values []float32
		finite bool
	}{
		{"values of about 1", random(1), true},
		{"an outlier", with(-1000), true},
		{"small values", random(1e-4), true},
		{"values whose scale is subnormal", random(1e-6), true},
		{"zeros", make([]float32, 32), true},
		{"values too small for a scale", random(1e-12), true},
		{"values too large for a scale", random(1e20), false},
		{"a NaN", with(nan), false},
		{"an infinity", with(-inf), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			data, got := make([]byte, 34), make([]float32, 32)
			gguf.QuantizeQ8_0(c.values, data)
			if err := gguf.Dequantize(gguf.Q8_0, data, got); err != nil {
				t.Fatal(err)
			}
			largest := 0.0
			for _, v := range c.values {
				largest = max(largest, math.Abs(float64(v)))
			}
			for i, v := range got {
				if !c.finite {
					if v == v {
						t.Fatalf("value %d is %g, want NaN", i, v)
					}
					continue
				}
				// The scale is off by up to half a unit of half precision; of subnormals that is 2^-25.
				allowed := largest/254*1.001 + largest/2048 + 127*math.Ldexp(1, -25)
				if off := math.Abs(float64(v - c.values[i])); !(off <= allowed) {
					t.Fatalf("value %d is %g, want %g", i, v, c.values[i])
				}
			}
		})
	}
}

// TestQuantizeQ8_0_KeepsWholeMultiples stores blocks of the values of formats of two or three bits, each with
// another largest value: all that is lost is the rounding of the scale to half precision.
func TestQuantizeQ8_0_KeepsWholeMultiples(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 11))
	for name, values := range map[string][]float32{
		"IQ3_S": {1, 3, 5, 7, 9, 11, 13, 15}, "IQ3_XXS": {4, 12, 20, 28, 36, 44, 52, 62}, "IQ2_XXS": {8, 25, 43}, "IQ1": {1, 7, 8, 9},
	} {
		for n := range values {
			unit := float32(math.Exp(rng.NormFloat64() - 5))
			block := make([]float32, 32)
			for i := range block {
				block[i] = unit * values[rng.IntN(n+1)] * float32(2*rng.IntN(2)-1)
			}
			block[rng.IntN(32)] = unit * values[n]
			data, got := make([]byte, 34), make([]float32, 32)
			gguf.QuantizeQ8_0(block, data)
			if err := gguf.Dequantize(gguf.Q8_0, data, got); err != nil {
				t.Fatal(err)
			}
			for i, v := range got {
				if off := math.Abs(float64(v/block[i] - 1)); off > 1.0/2048 {
					t.Errorf("%s up to %g: value %d is %g, want %g", name, values[n], i, v, block[i])
				}
			}
		}
	}
}
