package units

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// sizes are the units of ParseByteSize, those that end others last.
var sizes = []struct {
	name  string
	bytes float64
}{
	{"kib", 1 << 10}, {"mib", 1 << 20}, {"gib", 1 << 30}, {"tib", 1 << 40},
	{"kb", 1e3}, {"mb", 1e6}, {"gb", 1e9}, {"tb", 1e12},
	{"k", 1 << 10}, {"m", 1 << 20}, {"g", 1 << 30}, {"t", 1 << 40}, {"b", 1}, {"", 1},
}

// ParseByteSize returns the bytes of a size that people write: a positive number with a unit, such as 24GB, 1.5 GiB or 512m. A single
// letter means a power of 1024, and no unit bytes.
func ParseByteSize(text string) (int64, error) {
	for _, unit := range sizes {
		digits, ok := strings.CutSuffix(strings.ToLower(strings.TrimSpace(text)), unit.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(digits), 64)
		if bytes := n * unit.bytes; err == nil && bytes >= 1 && bytes < math.MaxInt64 {
			return int64(bytes), nil
		}
		break
	}
	return 0, fmt.Errorf("%q is not a size such as 24GB, 24GiB or 512MB", text)
}
