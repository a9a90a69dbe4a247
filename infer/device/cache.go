package device

import (
	"fmt"
	"slices"
	"strings"

	"m40-llm/infer/gguf"
)

// CacheType is the format of a KV cache: that of keys, and that of values. A latent cache, which has no values of its own, has
// that of keys. F32 and F16 are rounded from F32. Q8_0 and Q4_0 have blocks of 32 elements x of a head, as in package gguf; all
// devices compute, in float32,
//
//	Q8_0: m = max |x|, scale m/127 as F16, codes x · (127/m), rounded to the nearest integer, ties to even
//	Q4_0: m = the x with the largest |x|, the negative one of two, scale -m/8 as F16, codes x · (-8/m), rounded in the same way, + 8, at most 15
//
// and zeros if 127/m or 8/m is not finite. A block with a NaN or an infinity has the scale NaN. Attention has the bits of attention over
// a cache of F32 with the values of the codes. Blocks of quantised keys are rotated before, and the queries too: see
// KVLayout.RotatesKeys.
type CacheType struct{ Keys, Values gguf.Type }

// CacheOf returns the CacheType with keys and values of type t.
func CacheOf(t gguf.Type) CacheType { return CacheType{t, t} }

// CacheTypes are the types of keys and values.
var CacheTypes = []gguf.Type{gguf.F16, gguf.F32, gguf.Q8_0, gguf.Q4_0}

// ParseCacheType returns the CacheType with the name that String gives it: f16, f32, q8_0 or q4_0, or two of these for keys and values,
// such as q8_0/q4_0.
func ParseCacheType(name string) (c CacheType, err error) {
	keys, values, two := strings.Cut(name, "/")
	if !two {
		values = keys
	}
	if c.Keys, err = cacheType(keys); err != nil {
		return CacheType{}, err
	}
	if c.Values, err = cacheType(values); err != nil {
		return CacheType{}, err
	}
	if c.Keys != c.Values && (c.Keys == gguf.F32 || c.Values == gguf.F32) {
		return CacheType{}, fmt.Errorf("%q has one of keys and values in f32: that is possible for both alone", name)
	}
	return c, nil
}

func cacheType(name string) (gguf.Type, error) {
	i := slices.IndexFunc(CacheTypes, func(t gguf.Type) bool { return strings.ToLower(t.String()) == name })
	if i < 0 {
		return 0, fmt.Errorf("%q is none of auto, f16, f32, q8_0, q4_0 and two of the last three and f16, as in q8_0/q4_0, for keys and values", name)
	}
	return CacheTypes[i], nil
}

// String returns the name in lower case: f16, or q8_0/q4_0 if values have another type.
func (c CacheType) String() string {
	keys, values := strings.ToLower(c.Keys.String()), strings.ToLower(c.Values.String())
	if keys == values {
		return keys
	}
	return keys + "/" + values
}

// Known reports whether keys and values have types that a cache may have.
func (c CacheType) Known() bool {
	return slices.Contains(CacheTypes, c.Keys) && slices.Contains(CacheTypes, c.Values)
}

// Fits reports whether heads of dim elements are whole blocks of both types.
func (c CacheType) Fits(dim int) bool {
	for _, t := range []gguf.Type{c.Keys, c.Values} {
		if n, _ := t.Block(); n == 0 || dim%int(n) != 0 {
			return false
		}
	}
	return true
}

// RotatesKeys reports whether keys are rotated before they are quantised, which spreads elements that are much larger than the others of
// their block: x becomes H x, with the Hadamard matrix H of 32 rows. Queries become H x / 32, so scores are the same but for rounding. H x is
// computed in float32 by five steps: in step i, from 0 on, elements j and j + 2^i become their sum and their difference, for each j
// without bit i. Values gain nothing by that, so those of a latent cache, which are in its keys, are not rotated.
func (l KVLayout) RotatesKeys() bool { return l.Latent == 0 && !CacheOf(l.Type.Keys).Fits(1) }

// HeadBytes returns the bytes of a head's keys (part 0) or values (part 1) in a block of the cache.
func (l KVLayout) HeadBytes(part int) int64 {
	t := l.Type.Keys
	if part > 0 {
		t = l.Type.Values
	}
	return BlockSize * int64(t.RowBytes(l.HeadDim))
}

// CheckType returns an error unless the cache has types that a cache may have, and heads that are whole blocks of them.
func (l KVLayout) CheckType() error {
	switch {
	case !l.Type.Known():
		return fmt.Errorf("a KV cache cannot have the format %s; it can have F16, F32, Q8_0 and Q4_0", l.Type)
	case !l.Type.Fits(l.HeadDim):
		return fmt.Errorf("a KV cache in the format %s cannot have heads of %d elements, which are no multiple of 32; use f16", l.Type, l.HeadDim)
	}
	return nil
}
