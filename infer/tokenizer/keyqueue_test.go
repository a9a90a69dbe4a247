package tokenizer

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestBucketsAreOrderedByPriority(t *testing.T) {
	for bucket := range bucketCount {
		start := bucketStart(bucket)
		if got := bucketOf(uint32(start)); got != bucket {
			t.Errorf("bucket %d starts at %d, which is in bucket %d", bucket, start, got)
		}
		if end := bucketStart(bucket + 1); end <= start || bucketOf(uint32(end-1)) != bucket {
			t.Errorf("bucket %d ends at %d, which is in bucket %d", bucket, end-1, bucketOf(uint32(end-1)))
		}
	}
	if bucketStart(bucketCount) != 1<<32 {
		t.Errorf("the buckets end at %d, want 1<<32", bucketStart(bucketCount))
	}
}

// Compares with a linear search for the lowest key.
func TestKeyQueuePopsTheLowestKey(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 8))
	draws := map[string]func(last uint64) uint64{
		"few priorities":       func(uint64) uint64 { return r.Uint64N(3)<<32 | r.Uint64N(1000) },
		"one priority":         func(uint64) uint64 { return 7<<32 | r.Uint64N(1<<20) },
		"all priorities":       func(uint64) uint64 { return r.Uint64() },
		"mostly low ones":      func(uint64) uint64 { return r.Uint64() >> r.IntN(64) },
		"above the popped one": func(last uint64) uint64 { return last + r.Uint64()>>(r.IntN(60)+4) },
		"the popped one again": func(last uint64) uint64 { return last },
		"the highest":          func(uint64) uint64 { return math.MaxUint64 - r.Uint64N(5) },
	}
	var q keyQueue
	for name, draw := range draws {
		t.Run(name, func(t *testing.T) {
			for _, n := range []int{0, 1, 2, 30, 31, 32, 63, smallQueue, smallQueue + 1, 2000} {
				q.reset(n)
				var slow []uint64
				last := uint64(0)
				push := func() {
					key := draw(last)
					q.push(key)
					slow = append(slow, key)
				}
				for range n {
					push()
				}
				for pushed := n; len(slow) > 0; {
					at := 0
					for i, key := range slow {
						if key < slow[at] {
							at = i
						}
					}
					got, steps, ok := q.pop()
					if !ok || got != slow[at] || steps < 1 {
						t.Fatalf("got %x, %v in %d steps with %d keys, want %x", got, ok, steps, len(slow), slow[at])
					}
					last = got
					slow = slices.Delete(slow, at, at+1)
					for ; pushed < 2*n && r.IntN(2) == 0; pushed++ {
						push()
					}
				}
				if key, _, ok := q.pop(); ok {
					t.Fatalf("an empty queue returned %x", key)
				}
			}
		})
	}
}

func TestMergeTableFindsStoredMerges(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 9))
	for _, n := range []int{0, 1, 2, 3, 100, 5000} {
		table, want := newMergeTable(n), map[uint64]merge{}
		for i := range n {
			pair := pairKey(r.Int32N(100), r.Int32N(100))
			m := merge{pair, uint32(i), int32(i)}
			*table.find(pair) = m
			want[pair] = m
		}
		for left := int32(-1); left < 101; left++ {
			for right := int32(-1); right < 101; right++ {
				pair := pairKey(left, right)
				m, ok := want[pair]
				if got := *table.find(pair); ok && got != m || !ok && got.rank != cannotMerge {
					t.Fatalf("%d merges, pair %d %d: got %v, want %v, %v", n, left, right, got, m, ok)
				}
			}
		}
	}
}
