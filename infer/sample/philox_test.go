package sample

import "testing"

// The expected words are published with Random123.
func TestPhilox4x32_MatchesThePublishedVectors(t *testing.T) {
	for name, tt := range map[string]struct {
		ctr  [4]uint32
		key  [2]uint32
		want [4]uint32
	}{
		"all bits zero": {want: [4]uint32{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
		"all bits one": {
			[4]uint32{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
			[2]uint32{0xffffffff, 0xffffffff},
			[4]uint32{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
		},
		"digits of pi": {
			[4]uint32{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
			[2]uint32{0xa4093822, 0x299f31d0},
			[4]uint32{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := philox4x32(tt.ctr, tt.key); got != tt.want {
				t.Errorf("got %08x, want %08x", got, tt.want)
			}
		})
	}
}

func TestUniforms_DependOnSeedAndPosition(t *testing.T) {
	t.Run("each takes the high bits of two words", func(t *testing.T) {
		// Philox of zeros is 6627e8d5 e169c58d bc57ac4c 9b00dbd8.
		draw, coin := uniforms(0, 0)
		if draw != float64(0xe169c58d6627e8d5>>11)/(1<<53) || coin != float64(0x9b00dbd8bc57ac4c>>11)/(1<<53) {
			t.Errorf("%v and %v", draw, coin)
		}
	})
	t.Run("they use every bit of seed and position", func(t *testing.T) {
		seen := map[float64]string{}
		note := func(what string, u float64) {
			if u < 0 || u >= 1 {
				t.Errorf("%s: %v is outside [0, 1)", what, u)
			}
			if other, ok := seen[u]; ok {
				t.Errorf("%s gives the same number as %s", what, other)
			}
			seen[u] = what
		}
		both := func(what string, seed int64, pos int) {
			draw, coin := uniforms(seed, pos)
			note(what, draw)
			note(what+", for the coin", coin)
		}
		both("nothing", 0, 0)
		for i := range 63 {
			both("a bit of the seed", 1<<i, 0)
			both("a bit of the position", 0, 1<<i)
		}
	})
}

func TestDrawSeed_ReturnsDifferentSeedsBelow2To32(t *testing.T) {
	seen := map[int64]bool{}
	for range 100 {
		seed := DrawSeed()
		if seed < 0 || seed >= 1<<32 {
			t.Fatalf("seed %d is not below 2^32", seed)
		}
		seen[seed] = true
	}
	if len(seen) < 99 { // two collisions in 100 happen once in a million runs
		t.Errorf("got %d different seeds of 100", len(seen))
	}
}
