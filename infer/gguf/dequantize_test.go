package gguf_test

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
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
	if compared != 7 { // F32 needs no reference
		t.Errorf("%d types were compared, want F16, BF16, Q8_0, Q4_0, Q4_K, Q5_K and Q6_K", compared)
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
		{"a type without a decoder is named, with those that have one", gguf.Q2_K, 84, 256, "weights of type Q2_K, only with F32, F16, Q4_0, Q8_0, Q4_K, Q5_K, Q6_K and BF16"},
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
