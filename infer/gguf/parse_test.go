package gguf_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"m40-llm/infer/gguf"
	"m40-llm/infer/gguf/gguftest"
)

// sample has a key of every type and tensors of three types.
func sample() *gguftest.Builder {
	return gguftest.New().
		Set("a.uint8", uint8(200)).Set("a.int8", int8(-100)).
		Set("a.uint16", uint16(60000)).Set("a.int16", int16(-30000)).
		Set("a.uint32", uint32(4000000000)).Set("a.int32", int32(-2000000000)).
		Set("a.uint64", uint64(math.MaxUint64)).Set("a.int64", int64(math.MinInt64)).
		Set("a.float32", float32(0.5)).Set("a.float64", 0.1).
		Set("a.bool", true).Set("a.string", "héllo\x00\xff").
		Set("a.strings", []string{"", "a", "bc\xfe"}).
		Set("a.uint32s", []uint32{0, math.MaxUint32}).Set("a.int32s", []int32{-1, 7}).
		Set("a.uint8s", []uint8{1, 2, 255}).Set("a.int64s", []int64{math.MaxInt64}).
		Set("a.float32s", []float32{1.5, -2}).Set("a.float64s", []float64{0.25}).
		Set("a.bools", []bool{true, false}).Set("a.empty", []string{}).
		Tensor("norm", gguf.F32, []int{3}, []byte("\x00\x00\x80\x3f\x00\x00\x00\x40\x00\x00\x40\x40")).
		Tensor("matrix", gguf.Q8_0, []int{64, 2}, make([]byte, 4*34)).
		Tensor("half", gguf.F16, []int{2, 2, 1, 1}, make([]byte, 8))
}

func mustParse(t testing.TB, data []byte) *gguf.File {
	t.Helper()
	f, err := gguf.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestGetters(t *testing.T) {
	f := mustParse(t, sample().Bytes())
	get := func(v any, err error) any {
		if err != nil {
			return err.Error()
		}
		return v
	}
	str := func(key string) any { v, err := f.Str(key); return get(v, err) }
	uint_ := func(key string) any { v, err := f.Uint(key); return get(v, err) }
	int_ := func(key string) any { v, err := f.Int(key); return get(v, err) }
	float := func(key string) any { v, err := f.Float(key); return get(v, err) }
	bool_ := func(key string) any { v, err := f.Bool(key); return get(v, err) }
	strs := func(key string) any { v, err := f.Strs(key); return get(v, err) }
	uints := func(key string) any { v, err := f.Uints(key); return get(v, err) }
	ints := func(key string) any { v, err := f.Ints(key); return get(v, err) }
	floats := func(key string) any { v, err := f.Floats(key); return get(v, err) }
	for _, c := range []struct {
		name string
		got  any
		want any
	}{
		{"a uint8 is an unsigned number", uint_("a.uint8"), uint64(200)},
		{"a uint16 is an unsigned number", uint_("a.uint16"), uint64(60000)},
		{"a uint32 is an unsigned number", uint_("a.uint32"), uint64(4000000000)},
		{"a uint64 is an unsigned number", uint_("a.uint64"), uint64(math.MaxUint64)},
		{"an int8 is a signed number", int_("a.int8"), int64(-100)},
		{"an int16 is a signed number", int_("a.int16"), int64(-30000)},
		{"an int32 is a signed number", int_("a.int32"), int64(-2000000000)},
		{"an int64 is a signed number", int_("a.int64"), int64(math.MinInt64)},
		{"an unsigned number that fits is a signed one", int_("a.uint32"), int64(4000000000)},
		{"an unsigned number that does not fit in 63 bits is refused", int_("a.uint64"), `key "a.uint64": 18446744073709551615 is too large for a signed 64-bit integer`},
		{"a negative number is no unsigned one", uint_("a.int8"), `key "a.int8": -100 is negative`},
		{"a float32 is a float", float("a.float32"), 0.5},
		{"a float64 is a float", float("a.float64"), 0.1},
		{"a bool is a bool", bool_("a.bool"), true},
		{"a string keeps bytes that are not UTF-8", str("a.string"), "héllo\x00\xff"},
		{"strings keep bytes that are not UTF-8", strs("a.strings"), []string{"", "a", "bc\xfe"}},
		{"an empty array is empty, not missing", strs("a.empty"), []string{}},
		{"unsigned arrays widen", uints("a.uint8s"), []uint64{1, 2, 255}},
		{"signed arrays come as they are", ints("a.int32s"), []int32{-1, 7}},
		{"an array with a negative number is not unsigned", uints("a.int32s"), `key "a.int32s": element 0: -1 is negative`},
		{"an array with a number beyond 32 bits is refused", ints("a.int64s"), `key "a.int64s": element 0 does not fit in a signed 32-bit integer`},
		{"float arrays come as they are", floats("a.float32s"), []float32{1.5, -2}},
		{"float64 arrays are rounded", floats("a.float64s"), []float32{0.25}},

		{"a missing key is named", str("b"), `key "b": missing`},
		{"a string is no number", uint_("a.string"), `key "a.string" is of type string, want integer`},
		{"a number is no string", str("a.uint8"), `key "a.uint8" is of type uint8, want string`},
		{"an integer is no float", float("a.uint8"), `key "a.uint8" is of type uint8, want float`},
		{"a float is no integer", int_("a.float32"), `key "a.float32" is of type float32, want integer`},
		{"a number is no bool", bool_("a.uint8"), `key "a.uint8" is of type uint8, want bool`},
		{"a bool is no number", uint_("a.bool"), `key "a.bool" is of type bool, want integer`},
		{"an array is no single value", str("a.strings"), `key "a.strings" is of type array of string, want string`},
		{"a single value is no array", strs("a.string"), `key "a.string" is of type string, want array of string`},
		{"an array of floats is no array of integers", ints("a.float32s"), `key "a.float32s" is of type array of float32, want array of integer`},
		{"an array of bools is no array of integers", uints("a.bools"), `key "a.bools" is of type array of bool, want array of integer`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if !reflect.DeepEqual(c.got, c.want) {
				t.Errorf("got %#v, want %#v", c.got, c.want)
			}
		})
	}
}

func TestOptional_ReturnsTheDefaultOnlyForAMissingKey(t *testing.T) {
	f := mustParse(t, sample().Bytes())
	t.Run("the value of an existing key is returned", func(t *testing.T) {
		if v, err := gguf.Optional(f.Uint, "a.uint8", 1); v != 200 || err != nil {
			t.Errorf("got %d, %v", v, err)
		}
	})
	t.Run("a missing key returns the default", func(t *testing.T) {
		if v, err := gguf.Optional(f.Uint, "b", 1); v != 1 || err != nil {
			t.Errorf("got %d, %v", v, err)
		}
	})
	t.Run("a key of the wrong type is an error, not the default", func(t *testing.T) {
		_, err := gguf.Optional(f.Uint, "a.string", 1)
		var wrong *gguf.TypeError
		if !errors.As(err, &wrong) || wrong.Key != "a.string" || wrong.Found != "string" || wrong.Wanted != "integer" {
			t.Errorf("got %v", err)
		}
	})
}

func TestTensors_AreFoundAfterTheHeader(t *testing.T) {
	for _, alignment := range []int{1, 8, 32, 4096} {
		t.Run(fmt.Sprintf("tensors are found behind the header at an alignment of %d", alignment), func(t *testing.T) {
			b := sample().Set("general.alignment", alignment)
			f := mustParse(t, b.Bytes())
			norm, err := f.Tensor("norm")
			if err != nil {
				t.Fatal(err)
			}
			values := make([]float32, 3)
			if err := gguf.Dequantize(norm.Type, norm.Data, values); err != nil || !reflect.DeepEqual(values, []float32{1, 2, 3}) {
				t.Errorf("norm holds %v, %v", values, err)
			}
			half, err := f.Tensor("half")
			if err != nil || len(half.Data) != 8 || !reflect.DeepEqual(half.Shape, []int{2, 2, 1, 1}) {
				t.Errorf("half is %v, %v", half, err)
			}
			if n := len(f.Tensors()); n != 3 {
				t.Errorf("there are %d tensors, want 3", n)
			}
		})
	}
	t.Run("a missing tensor is named", func(t *testing.T) {
		_, err := mustParse(t, sample().Bytes()).Tensor("output.weight")
		if !errors.Is(err, gguf.ErrMissing) || !strings.Contains(err.Error(), `"output.weight"`) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("a tensor's data cannot be appended into its neighbour", func(t *testing.T) {
		for _, tensor := range mustParse(t, sample().Bytes()).Tensors() {
			if cap(tensor.Data) != len(tensor.Data) {
				t.Errorf("%s: capacity %d of %d bytes", tensor.Name, cap(tensor.Data), len(tensor.Data))
			}
		}
	})
}

func TestParse_SupportsVersions2And3(t *testing.T) {
	for _, c := range []struct {
		version uint32
		want    string // part of the error
	}{
		{2, ""}, {3, ""},
		{0, "version 0"}, {1, "version 1"}, {4, "version 4"},
		{0x03000000, "big-endian"}, {0x02000000, "big-endian"},
	} {
		t.Run(fmt.Sprintf("version %#x", c.version), func(t *testing.T) {
			data := sample().Bytes()
			binary.LittleEndian.PutUint32(data[4:], c.version)
			f, err := gguf.Parse(data)
			switch {
			case c.want == "" && err != nil:
				t.Error(err)
			case c.want == "" && f.Version() != c.version:
				t.Errorf("got version %d", f.Version())
			case c.want != "":
				wantFormatError(t, err, c.want)
			}
		})
	}
}

// wantFormatError checks that err is a FormatError or TypeError whose text contains all of want.
func wantFormatError(t *testing.T, err error, want ...string) {
	t.Helper()
	var format *gguf.FormatError
	var typed *gguf.TypeError
	if !errors.As(err, &format) && !errors.As(err, &typed) {
		t.Fatalf("got error %v of type %T, want a FormatError or TypeError", err, err)
	}
	for _, w := range want {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("got error without %q: %v", w, err)
		}
	}
}

// put overwrites the field called name.
func put(t testing.TB, b *gguftest.Builder, name string, v uint64) []byte {
	t.Helper()
	data, fields := b.Layout()
	for _, f := range fields {
		if f.Name != name {
			continue
		}
		if f.Size == 4 {
			binary.LittleEndian.PutUint32(data[f.Offset:], uint32(v))
		} else {
			binary.LittleEndian.PutUint64(data[f.Offset:], v)
		}
		return data
	}
	t.Fatalf("there is no field %q", name)
	return nil
}

// The files are known ways to make a GGUF reader overrun memory.
func TestParse_RejectsHostileFiles(t *testing.T) {
	key := func() *gguftest.Builder { return gguftest.New().Set("k", "v") }
	strs := func() *gguftest.Builder { return gguftest.New().Set("k", []string{"v"}) }
	nums := func() *gguftest.Builder { return gguftest.New().Set("k", []uint32{1}) }
	one := func() *gguftest.Builder {
		return gguftest.New().Tensor("w", gguf.F32, []int{8}, make([]byte, 32))
	}
	two := func() *gguftest.Builder {
		return one().Tensor("x", gguf.F32, []int{8}, make([]byte, 32))
	}
	text := func(s string) []byte { return []byte(s) }
	for _, c := range []struct {
		name string
		file []byte
		want []string // parts of the error
	}{
		{"the file is empty", nil, []string{"not a GGUF file", "empty"}},
		{"the file has four bytes", text("GGUF"), []string{"too early", "version"}},
		{"the file is a zip archive", text("PK\x03\x04 and more"), []string{"not a GGUF file", `"PK\x03\x04 and"`}},
		{"the file is an older GGML file", text("tjgg\x01\x00\x00\x00"), []string{"not a GGUF file"}},
		{"the header ends after the version", sample().Bytes()[:8], []string{"too early", "number of tensors"}},

		{"2^64-1 tensors are declared", put(t, one(), "tensor count", math.MaxUint64), []string{"18446744073709551615 tensors"}},
		{"65,537 tensors are declared", put(t, one(), "tensor count", 65537), []string{"65537 tensors", "65536"}},
		{"65,536 tensors are declared and one exists", put(t, one(), "tensor count", 65536), []string{"tensor 2 of 65536"}},
		{"2^63 keys are declared", put(t, key(), "key count", 1<<63), []string{"metadata keys"}},
		{"65,536 keys are declared and one exists", put(t, key(), "key count", 65536), []string{"metadata key 2 of 65536", "too early"}},

		{"a key's length is 2^64-1", put(t, key(), "k key length", math.MaxUint64), []string{"the key", "18446744073709551615"}},
		{"a key's length is one more than 64 KiB", put(t, key(), "k key length", 65537), []string{"the key", "65537"}},
		{"a key's length is beyond the file", put(t, key(), "k key length", 1000), []string{"the key", "1000"}},
		{"a string's length is 2^64-1", put(t, key(), "k length", math.MaxUint64), []string{`"k"`, "18446744073709551615"}},
		{"a string's length is 2^64-8, so that the position wraps", put(t, key(), "k length", math.MaxUint64-7), []string{`"k"`}},
		{"a string's length is beyond the file", put(t, key(), "k length", 1<<20), []string{`"k"`, "1048576 bytes"}},
		{"a value's type is unknown", put(t, key(), "k type", 13), []string{`"k"`, "type 13"}},
		{"a value's type is 2^32-1", put(t, key(), "k type", math.MaxUint32), []string{`"k"`, "type 4294967295"}},
		{"an array is inside an array", put(t, nums(), "k element type", 9), []string{`"k"`, "arrays inside arrays"}},
		{"an array's element type is unknown", put(t, nums(), "k element type", 14), []string{`"k"`, "type 14"}},
		{"an array of strings has 64 Mi elements", put(t, strs(), "k element count", 64<<20), []string{`"k"`, "67108864"}},
		{"an array of numbers has 2^62 elements, so that its size wraps to zero", put(t, nums(), "k element count", 1<<62), []string{`"k"`}},
		{"an array of numbers has 2^62+1 elements, so that its size wraps to the true one", put(t, nums(), "k element count", 1<<62+1), []string{`"k"`}},
		{"a string in an array has 2^63 bytes", put(t, strs(), "k first string length", 1<<63), []string{`"k"`, "element 0 of 1"}},
		{"a key occurs twice", key().Set("k", 1).Bytes(), []string{`"k"`, "twice"}},
		{"a bool is 2", gguftest.New().Set("k", true).Bytes()[:24+8+1+4], []string{`"k"`, "too early"}},

		{"the alignment is 0", gguftest.New().Set("general.alignment", 0).Bytes(), []string{"general.alignment is 0"}},
		{"the alignment is no power of two", gguftest.New().Set("general.alignment", 24).Bytes(), []string{"general.alignment is 24"}},
		{"the alignment is 2^31", gguftest.New().Set("general.alignment", 1<<31).Bytes(), []string{"general.alignment is 2147483648"}},
		{"the alignment is a string", gguftest.New().Set("general.alignment", "32").Bytes(), []string{"general.alignment", "string"}},

		{"a tensor has no dimensions", put(t, one(), "w dimension count", 0), []string{`"w"`, "0 dimensions"}},
		{"a tensor has 5 dimensions", put(t, one(), "w dimension count", 5), []string{`"w"`, "5 dimensions"}},
		{"a tensor has 2^32-1 dimensions", put(t, one(), "w dimension count", math.MaxUint32), []string{`"w"`, "4294967295 dimensions"}},
		{"a tensor has a dimension of 0", put(t, one(), "w dimension 1", 0), []string{`"w"`, "dimension 1 is 0"}},
		{"a tensor has a negative dimension", put(t, one(), "w dimension 1", math.MaxUint64), []string{`"w"`, "dimension 1"}},
		{"a tensor's size is 2^64, so that it wraps to zero", put(t, one(), "w dimension 1", 1<<62), []string{`"w"`}},
		{"a tensor's size wraps to 32 bytes", put(t, one(), "w dimension 1", 1<<62+8), []string{`"w"`}},
		{"the product of a tensor's dimensions wraps", gguftest.New().Tensor("w", gguf.F32, []int{1 << 32, 1 << 31, 2}, nil).Bytes(), []string{`"w"`, "overflows"}},
		{"a tensor has more elements than can be counted, in few bytes", gguftest.New().Tensor("w", gguf.IQ1_S, []int{1 << 62, 2}, nil).Bytes(), []string{`"w"`, "overflows"}},
		{"a tensor's type is unknown", put(t, one(), "w type", 1000), []string{`"w"`, "type 1000"}},
		{"a tensor's rows are not whole blocks", put(t, one(), "w type", uint64(gguf.Q4_0)), []string{`"w"`, "8 elements", "Q4_0", "32"}},
		{"a tensor's offset is not aligned", put(t, one(), "w offset", 8), []string{`"w"`, "offset 8", "alignment 32"}},
		{"a tensor's offset is beyond the file", put(t, one(), "w offset", 1<<20), []string{`"w"`, "offset 1048576"}},
		{"a tensor's offset makes its start wrap", put(t, one(), "w offset", math.MaxUint64-31), []string{`"w"`}},
		{"a tensor's offset makes its end wrap", put(t, one(), "w offset", math.MaxUint64-127), []string{`"w"`}},
		{"a tensor is one byte longer than the file", one().Bytes()[:len(one().Bytes())-1], []string{`"w"`, "32 bytes", "cut short"}},
		{"a tensor begins before the end of another", put(t, two(), "w dimension 1", 16), []string{`"x"`, "overlaps", `"w"`}},
		{"two tensors have the same offset", put(t, two(), "x offset", 0), []string{"overlaps"}},
		{"a tensor occurs twice", one().Tensor("w", gguf.F32, []int{8}, make([]byte, 32)).Bytes(), []string{`"w"`, "twice"}},
		{"a tensor's name has 2^63 bytes", put(t, one(), "w name length", 1<<63), []string{"the name"}},
		{"the file ends inside a tensor's description", one().Bytes()[:40], []string{"tensor 1 of 1", "too early"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := gguf.Parse(c.file)
			wantFormatError(t, err, c.want...)
			if strings.ContainsAny(err.Error(), "\n\x1b") {
				t.Errorf("the error contains control characters: %q", err)
			}
		})
	}
	t.Run("a bool that is neither 0 nor 1 is refused", func(t *testing.T) {
		data := gguftest.New().Set("k", true).Bytes()
		data[len(data)-1] = 2
		_, err := gguf.Parse(data)
		wantFormatError(t, err, `"k"`, "a bool is 2")
	})
	t.Run("a file truncated at any byte of its header or data is refused", func(t *testing.T) {
		whole := sample().Bytes()
		for n := range whole {
			if _, err := gguf.Parse(whole[:n:n]); err == nil {
				t.Fatalf("the first %d of %d bytes were accepted as a file", n, len(whole))
			}
		}
	})
}

// allocated returns how many bytes f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// leastAllocated returns the minimum of several calls of allocated, to exclude allocations of
// other goroutines.
func leastAllocated(f func()) uint64 {
	least := allocated(f)
	for range 9 {
		least = min(least, allocated(f))
	}
	return least
}

func TestParse_KeepsTensorsOfUnknownTypes(t *testing.T) {
	for _, c := range []struct {
		name    string
		typ     uint64
		want    string // name of the type
		isNewer bool
	}{
		{"a type that is newer than the program has its number", 43, "type 43", true},
		{"a type that is far newer than the program has its number", 200, "type 200", true},
		{"a type that was taken out of the format has its name", 31, "Q4_0_4_4", false},
		{"a type that was taken out of the format long ago has its name", 4, "Q4_2", false},
	} {
		t.Run(c.name+", and the rest of the file is read", func(t *testing.T) {
			b := gguftest.New().Set("k", "v").
				Tensor("u", gguf.F32, []int{9}, make([]byte, 36)).Tensor("w", gguf.F32, []int{8}, make([]byte, 32))
			f := mustParse(t, put(t, b, "u type", c.typ))
			u, w := f.Tensors()[0], f.Tensors()[1]
			if u.Type.String() != c.want || u.Type.IsNewer() != c.isNewer || u.Type.IsRemoved() == c.isNewer || u.Type.Known() {
				t.Errorf("got %s, newer %t, removed %t; want %s, newer %t", u.Type, u.Type.IsNewer(), u.Type.IsRemoved(), c.want, c.isNewer)
			}
			if u.Size() != 64 || len(u.Data) != 64 || w.Size() != 32 || w.Type != gguf.F32 {
				t.Errorf("got %d bytes of the unknown type and %d behind them, want 64, up to the next tensor, and 32", u.Size(), w.Size())
			}
		})
	}
}

func TestParse_AllocatesNoMoreThanTheFileNeeds(t *testing.T) {
	t.Run("a file of 57 bytes that declares 64 Mi strings costs a few KiB", func(t *testing.T) {
		data := put(t, gguftest.New().Set("k", []string{"", "x"}), "k element count", 64<<20)[:57]
		var err error
		n := leastAllocated(func() { _, err = gguf.Parse(data) })
		wantFormatError(t, err, "67108864")
		if n > 4<<10 {
			t.Errorf("%d bytes were allocated for a file of %d", n, len(data))
		}
	})
	t.Run("reading a vocabulary of 128,000 tokens copies it once", func(t *testing.T) {
		tokens := make([]string, 128000)
		bytes := 0
		for i := range tokens {
			tokens[i] = fmt.Sprintf("token%d", i)
			bytes += 8 + len(tokens[i])
		}
		data := gguftest.New().Set("tokens", tokens).Bytes()
		var f *gguf.File
		if n := leastAllocated(func() { f = mustParse(t, data) }); n > 4<<10 {
			t.Errorf("parsing allocated %d bytes", n)
		}
		var got []string
		n := leastAllocated(func() { got, _ = f.Strs("tokens") })
		if !reflect.DeepEqual(got, tokens) {
			t.Error("the tokens are not those of the file")
		}
		if limit := uint64(bytes + 16*len(tokens) + 64<<10); n > limit {
			t.Errorf("reading the tokens allocated %d bytes, want at most %d", n, limit)
		}
	})
}

// Sets every number of a header, alone and in pairs, to boundary values of the integer types.
func TestParse_RejectsBoundaryValues(t *testing.T) {
	edges := []uint64{0, 1, 1<<31 - 1, 1 << 31, 1<<31 + 1, 1 << 32, 1<<63 - 1, 1 << 63, 1<<63 + 1, math.MaxUint64 - 31, math.MaxUint64}
	whole, fields := gguftest.New().
		Set("general.alignment", 32).Set("s", "v").Set("l", []string{"a", "b"}).Set("n", []uint64{1}).
		Tensor("w", gguf.Q8_0, []int{32, 2}, make([]byte, 68)).
		Tensor("x", gguf.F32, []int{8}, make([]byte, 32)).Layout()
	data := make([]byte, len(whole))
	write := func(f gguftest.Field, v uint64) {
		if f.Size == 4 {
			binary.LittleEndian.PutUint32(data[f.Offset:], uint32(v))
		} else {
			binary.LittleEndian.PutUint64(data[f.Offset:], v)
		}
	}
	tried, taken := 0, 0
	try := func() {
		tried++
		if f, err := gguf.Parse(data); err == nil {
			taken++
			readAll(t, f)
		}
	}
	limit := uint64(len(data)*8 + 16<<20)
	for i, first := range fields {
		n := allocated(func() {
			for _, a := range edges {
				copy(data, whole)
				write(first, a)
				try()
			}
		})
		if n > limit {
			t.Errorf("%s: %d bytes were allocated for files of %d", first.Name, n, len(data))
		}
		for _, second := range fields[i+1:] {
			for _, a := range edges {
				for _, b := range edges {
					copy(data, whole)
					write(first, a)
					write(second, b)
					try()
				}
			}
		}
	}
	t.Logf("%d files tried, %d of them well-formed", tried, taken)
	if tried < 40000 || taken == 0 {
		t.Errorf("the generator made only %d files, %d of them well-formed", tried, taken)
	}
}

// readAll reads all keys with every getter, and all tensors.
func readAll(t testing.TB, f *gguf.File) {
	for _, key := range f.Keys() {
		f.Str(key)
		f.Uint(key)
		f.Int(key)
		f.Float(key)
		f.Bool(key)
		f.Strs(key)
		f.Uints(key)
		f.Ints(key)
		f.Floats(key)
	}
	for _, tensor := range f.Tensors() {
		block, bytes := tensor.Type.Block()
		if tensor.Elements()/int(block)*int(bytes) != len(tensor.Data) {
			t.Errorf("tensor %q, %s %v, has %d bytes", tensor.Name, tensor.Type, tensor.Shape, len(tensor.Data))
		}
		for i := 0; i < len(tensor.Data); i += 4096 {
			_ = tensor.Data[i]
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(sample().Bytes())
	f.Add(gguftest.TinyLlama(gguftest.Llama{Dim: 32, Heads: 2, KVHeads: 1, Layers: 1, FFN: 32, Type: gguf.Q4_0}))
	f.Add(gguftest.New().Set("general.alignment", 64).Set("k", []string{"a"}).Bytes())
	f.Add([]byte("GGUF"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		var file *gguf.File
		var err error
		n := allocated(func() { file, err = gguf.Parse(data) })
		if limit := uint64(8*len(data) + 16<<20); n > limit {
			t.Errorf("%d bytes were allocated for a file of %d", n, len(data))
		}
		if err == nil {
			readAll(t, file)
		}
	})
}

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	whole := sample().Bytes()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.WriteFile(path("good"), whole, 0o600))
	must(os.Symlink("good", path("link")))
	must(os.Symlink("nowhere", path("dangling")))
	must(os.Symlink("loop", path("loop")))
	must(os.WriteFile(path("empty"), nil, 0o600))
	must(os.WriteFile(path("four"), []byte("GGUF"), 0o600))
	must(os.WriteFile(path("text"), []byte("hello world"), 0o600))
	must(os.WriteFile(path("cut"), whole[:len(whole)-1], 0o600))
	must(os.Mkdir(path("dir"), 0o700))
	must(syscall.Mkfifo(path("fifo"), 0o600))
	socket, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	must(err)
	defer syscall.Close(socket)
	must(syscall.Bind(socket, &syscall.SockaddrUnix{Name: path("socket")}))

	for _, c := range []struct {
		name, file, want string // want: part of the error, empty for none
	}{
		{"a GGUF file opens", path("good"), ""},
		{"a symbolic link to a GGUF file opens", path("link"), ""},
		{"a missing file is said to be missing", path("missing"), "no such file"},
		{"a dangling link is said to be missing", path("dangling"), "no such file"},
		{"a link to itself is refused", path("loop"), "too many levels"},
		{"an empty file is refused", path("empty"), "it is empty"},
		{"a file of four bytes is refused", path("four"), "too early"},
		{"a text file is refused", path("text"), `starts with "hello wo"`},
		{"a file cut short is refused", path("cut"), "cut short"},
		{"a folder is refused", path("dir"), "a directory"},
		{"a named pipe is refused without waiting for its writer", path("fifo"), "a named pipe"},
		{"a socket is refused", path("socket"), "socket"},
		{"a device is refused", "/dev/zero", "a device"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, err := gguf.Open(c.file)
			if c.want != "" {
				if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), filepath.Base(c.file)) {
					t.Errorf("got error %v, want one with the file and %q", err, c.want)
				}
				return
			}
			must(err)
			if f.Size() != int64(len(whole)) {
				t.Errorf("size is %d, want %d", f.Size(), len(whole))
			}
			if s, err := f.Str("a.string"); err != nil || s != "héllo\x00\xff" {
				t.Errorf("a.string is %q, %v", s, err)
			}
			must(f.Close())
			must(f.Close()) // a second time does nothing
			if _, err := f.Str("a.string"); !errors.Is(err, os.ErrClosed) {
				t.Errorf("after Close: got %v, want os.ErrClosed", err)
			}
		})
	}
}

// bigHeader returns the path of a sparse file whose header is an array of n bytes. values are
// eight elements like those of the array: numbers of one byte or empty strings.
func bigHeader(t *testing.T, n int, values any) string {
	t.Helper()
	// Patches the length and the end of an array of 8 values.
	start := gguftest.New().Set("a", values).Bytes()
	each := 1
	if _, ok := values.([]string); ok {
		each = 8
	}
	at := bytes.LastIndex(start, append(binary.LittleEndian.AppendUint64(nil, 8), make([]byte, 8*each)...))
	if at < 0 {
		t.Fatal("the array was not found in the file")
	}
	binary.LittleEndian.PutUint64(start[at:], uint64(n/each))
	path := filepath.Join(t.TempDir(), "big.gguf")
	if err := os.WriteFile(path, start[:at+8], 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, int64(at+8+n)); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestOpen_AllocatesNoMoreThanTheHeaderNeeds(t *testing.T) {
	for _, c := range []struct {
		name   string
		bytes  int
		values any
		most   uint64 // of memory
		want   string // part of the error
	}{
		{"a long header takes its size", 16 << 20, make([]uint8, 8), 17 << 20, ""},
		{"a long array of strings takes its size", 16 << 20, make([]string, 8), 17 << 20, ""},
		{"an array over the limit is refused", 700 << 20, make([]uint8, 8), 1 << 20, "more than 134217728 bytes"},
		{"an array of strings over the limit is refused", 700 << 20, make([]string, 8), 1 << 20, "more than 134217728 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := bigHeader(t, c.bytes, c.values)
			var f *gguf.File
			var err error
			if n := allocated(func() { f, err = gguf.Open(path) }); n > c.most {
				t.Errorf("%d bytes were allocated, want at most %d", n, c.most)
			}
			if c.want != "" {
				if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) {
					t.Errorf("got %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			var values []any
			if n := leastAllocated(func() { values, _, _, err = f.First("a", 5) }); n > 4096 || len(values) != 5 || err != nil {
				t.Errorf("the first values took %d bytes: %v, %v", n, values, err)
			}
		})
	}
}

func TestFirst_ReturnsTheFirstValuesOfAKey(t *testing.T) {
	f := mustParse(t, sample().Bytes())
	for _, c := range []struct {
		key    string
		values []any
		count  int
		array  bool
	}{
		{"a.string", []any{"héllo\x00\xff"}, 1, false},
		{"a.uint64", []any{uint64(math.MaxUint64)}, 1, false},
		{"a.int8", []any{int64(-100)}, 1, false},
		{"a.bool", []any{true}, 1, false},
		{"a.float64", []any{0.1}, 1, false},
		{"a.strings", []any{"", "a"}, 3, true},
		{"a.uint8s", []any{uint64(1), uint64(2)}, 3, true},
		{"a.int32s", []any{int64(-1), uint64(7)}, 2, true},
		{"a.float32s", []any{float32(1.5), float32(-2)}, 2, true},
		{"a.float64s", []any{0.25}, 1, true},
		{"a.bools", []any{true, false}, 2, true},
		{"a.empty", nil, 0, true},
	} {
		t.Run(c.key, func(t *testing.T) {
			values, count, array, err := f.First(c.key, 2)
			if err != nil || !reflect.DeepEqual(values, c.values) || count != c.count || array != c.array {
				t.Errorf("got %#v, %d, %v, %v", values, count, array, err)
			}
		})
	}
	if _, _, _, err := f.First("b", 2); !errors.Is(err, gguf.ErrMissing) {
		t.Errorf("missing key: got %v", err)
	}
}

// Overwrites the file as cp does: truncated and written again.
func TestOpen_AHeaderDoesNotChangeWithItsFile(t *testing.T) {
	whole := sample().Bytes()
	path := filepath.Join(t.TempDir(), "a.gguf")
	for _, c := range []struct {
		name string
		now  []byte
	}{
		{"the file is cut to nothing", nil},
		{"the file has other bytes", bytes.Repeat([]byte{0xff}, len(whole))},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := os.WriteFile(path, whole, 0o600); err != nil {
				t.Fatal(err)
			}
			f, err := gguf.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if err := os.WriteFile(path, c.now, 0o600); err != nil {
				t.Fatal(err)
			}
			if s, err := f.Strs("a.strings"); err != nil || !reflect.DeepEqual(s, []string{"", "a", "bc\xfe"}) {
				t.Errorf("got strings %q, %v", s, err)
			}
			if !bytes.Equal(f.Header(), mustParse(t, whole).Header()) {
				t.Error("the header has changed")
			}
		})
	}
}

func TestGuard_TurnsFaultsIntoErrors(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.gguf")
	if err := os.WriteFile(path, gguftest.New().Tensor("w", gguf.F32, []int{1 << 16}, make([]byte, 4<<16)).Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	sum := 0
	read := func() error {
		for _, b := range f.Tensors()[0].Data {
			sum += int(b)
		}
		return nil
	}
	t.Run("existing data is read", func(t *testing.T) {
		if err := f.Guard(read); err != nil {
			t.Error(err)
		}
	})
	t.Run("an error is passed through", func(t *testing.T) {
		if err := f.Guard(func() error { return os.ErrClosed }); err != os.ErrClosed {
			t.Errorf("got %v", err)
		}
	})
	if err := os.Truncate(path, 4096); err != nil {
		t.Fatal(err)
	}
	t.Run("missing data is an error that names the file", func(t *testing.T) {
		if err := f.Guard(read); !errors.Is(err, gguf.ErrUnreadable) || !strings.Contains(err.Error(), path) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("another panic is passed through", func(t *testing.T) {
		defer func() {
			if p := recover(); p != "x" {
				t.Errorf("got %v", p)
			}
		}()
		f.Guard(func() error { panic("x") })
	})
	t.Run("a fault elsewhere is passed through", func(t *testing.T) {
		other, err := syscall.Mmap(-1, 0, 4096, syscall.PROT_NONE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
		if err != nil {
			t.Fatal(err)
		}
		defer syscall.Munmap(other)
		defer func() {
			if p, ok := recover().(runtime.Error); !ok || strings.Contains(p.Error(), path) {
				t.Errorf("got %v", p)
			}
		}()
		f.Guard(func() error { sum += int(other[0]); return nil })
	})
}

// Opens files of all lengths, whose headers cross the boundaries of the reads.
func TestOpen_ReadsWhatParseReads(t *testing.T) {
	whole := sample().Set("long", strings.Repeat("x", 100_000)).Set("many", make([]string, 20_000)).Bytes()
	path := filepath.Join(t.TempDir(), "a.gguf")
	for n := len(whole); n >= 0; n = n*15/16 - 1 {
		if err := os.WriteFile(path, whole[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		want, wantErr := gguf.Parse(whole[:n])
		got, err := gguf.Open(path)
		if (err == nil) != (wantErr == nil) || err != nil && err.Error() != path+": "+wantErr.Error() {
			t.Errorf("%d bytes: got %v, want %v", n, err, wantErr)
		}
		if err == nil {
			if !bytes.Equal(got.Header(), want.Header()) || !reflect.DeepEqual(got.Keys(), want.Keys()) {
				t.Errorf("%d bytes: another header", n)
			}
			got.Close()
		}
	}
}
