package httpio

import (
	"testing"
)

// pathAt runs on bodies of any form, at any byte.
func FuzzPathAt(f *testing.F) {
	f.Add([]byte(`{"a":[{"b":1},2],"c":"\"}"}`), 12)
	f.Add([]byte(`]}[{"`), 5)
	f.Add([]byte(`{"a\`), -1)
	f.Fuzz(func(t *testing.T, data []byte, end int) {
		pathAt(data, end)
		_ = CheckDepth(data)
	})
}
