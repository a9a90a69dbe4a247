package units

import "testing"

func TestAByteSizeIsANumberWithAUnit(t *testing.T) {
	for text, want := range map[string]int64{
		"24GB": 24e9, "24GiB": 24 << 30, "1.5 gib": 3 << 29, "512m": 512 << 20, "100": 100, "7 B": 7, " 2TB ": 2e12, "1e3kB": 1e6,
	} {
		if got, err := ParseByteSize(text); err != nil || got != want {
			t.Errorf("%q is %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "GB", "-1GB", "0", "NaN", "inf", "1e300GB", "12XB", "0.1B", "1 2GB", "9223372036854775808"} {
		if got, err := ParseByteSize(text); err == nil {
			t.Errorf("%q is %d, want an error", text, got)
		}
	}
}

func FuzzParseByteSize(f *testing.F) {
	f.Add("24GB")
	f.Fuzz(func(t *testing.T, text string) {
		if n, err := ParseByteSize(text); err == nil && n < 1 {
			t.Errorf("%q is %d bytes", text, n)
		}
	})
}
