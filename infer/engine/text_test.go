package engine

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// runes is what bytes read as: it looks for a rune, or the longest beginning of
// one, by trying every way to go on. rest is an unfinished beginning at the end.
func runes(b []byte) (text string, rest []byte) {
	text, _, rest = located(b)
	return text, rest
}

// located is runes with the place in b at which the rune of each byte of text begins.
func located(b []byte) (text string, from []int, rest []byte) {
	for at := 0; at < len(b); {
		r, n := utf8.DecodeRune(b[at:])
		if r == utf8.RuneError && n <= 1 {
			n = 0
			for n < min(3, len(b)-at) && beginsRune(b[at:at+n+1]) {
				n++
			}
			if n > 0 && at+n == len(b) {
				return text, from, b[at:]
			}
			n = max(n, 1)
		}
		text += string(r)
		for len(from) < len(text) {
			from = append(from, at)
		}
		at += n
	}
	return text, from, nil
}

func beginsRune(b []byte) bool {
	if len(b) == utf8.UTFMax {
		return false
	}
	for _, next := range []byte{0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf} {
		longer := append(bytes.Clone(b), next)
		if r, n := utf8.DecodeRune(longer); n == len(longer) && r != utf8.RuneError || beginsRune(longer) {
			return true
		}
	}
	return false
}

// cut returns what of a text may be shown while more may come: what precedes the
// stop string that is complete first (of two the longer), or else all but the
// longest beginning of one.
func cut(text string, stops []string) (shown, stopped string, ok bool) {
	for end := range len(text) + 1 {
		for _, stop := range stops {
			if strings.HasSuffix(text[:end], stop) && len(stop) > len(stopped) {
				stopped, ok = stop, true
			}
		}
		if ok {
			return text[:end-len(stopped)], stopped, true
		}
	}
	held := 0
	for _, stop := range stops {
		for n := range len(stop) {
			if strings.HasSuffix(text, stop[:n]) {
				held = max(held, n)
			}
		}
	}
	return text[:len(text)-held], "", false
}

// checkTextEdge compares every step of an answer with what the bytes so far read as.
func checkTextEdge(pieces [][]byte, stops []string) error {
	e := newTextBuffer(stops, nil)
	var got string
	var all []byte
	for i, piece := range pieces {
		text, stopped, ok := e.push(piece)
		got += text
		all = append(all, piece...)
		whole, _ := runes(all)
		wantText, wantStopped, wantOK := cut(whole, stops)
		if got != wantText || stopped != wantStopped || ok != wantOK {
			return fmt.Errorf("after piece %d of %q with stops %q: %q, %q, %v; want %q, %q, %v", i, pieces, stops, got, stopped, ok, wantText, wantStopped, wantOK)
		}
	}
	got += e.flush()
	want, rest := runes(all)
	if len(rest) > 0 {
		want += "\uFFFD"
	}
	if before, _, ok := cut(want, stops); ok {
		want = before
	}
	if got != want {
		return fmt.Errorf("%q with stops %q is %q, want %q", pieces, stops, got, want)
	}
	if again := e.flush(); again != "" {
		return fmt.Errorf("%q: a second flush returned %q", pieces, again)
	}
	return nil
}

// The byte sequences and what they read as are those of the Unicode standard 15,
// tables 3-8 to 3-11.
func TestTextEdge_BytesThatAreNoRune(t *testing.T) {
	const bad = "\uFFFD"
	for name, tt := range map[string]struct {
		bytes string
		want  string
	}{
		"truncated sequences":            {"a\xf1\x80\x80\xe1\x80\xc2b\x80c\x80\xbfd", "a" + bad + bad + bad + "b" + bad + "c" + bad + bad + "d"},
		"overlong forms":                 {"\xc0\xaf\xe0\x80\xbf\xf0\x81\x82A", strings.Repeat(bad, 8) + "A"},
		"surrogates":                     {"\xed\xa0\x80\xed\xbf\xbf\xed\xafA", strings.Repeat(bad, 8) + "A"},
		"beyond the last code point":     {"\xf4\x91\x92\x93\xffA\x80\xbfB", strings.Repeat(bad, 5) + "A" + bad + bad + "B"},
		"an end in the middle of a rune": {"x\xe2\x82", "x" + bad},
		"a real replacement character":   {"\xef\xbf\xbd", bad},
		"NUL is text":                    {"a\x00b", "a\x00b"},
	} {
		t.Run(name, func(t *testing.T) {
			e := newTextBuffer(nil, nil)
			var got string
			for _, b := range []byte(tt.bytes) {
				text, _, _ := e.push([]byte{b})
				got += text
			}
			if got += e.flush(); got != tt.want {
				t.Errorf("byte by byte %q, want %q", got, tt.want)
			}
			e = newTextBuffer(nil, nil)
			got, _, _ = e.push([]byte(tt.bytes))
			if got += e.flush(); got != tt.want {
				t.Errorf("at once %q, want %q", got, tt.want)
			}
		})
	}
}

func TestTextEdge_ReplacesBytesAsSoonAsTheyCannotBecomeARune(t *testing.T) {
	for name, tt := range map[string]struct{ first, second, want string }{
		"a byte that begins nothing":          {"", "\xff", "\uFFFD"},
		"a continuation of nothing":           {"", "\x80", "\uFFFD"},
		"a rune that breaks off":              {"\xe2\x82", "x", "\uFFFDx"},
		"a rune that another one breaks off":  {"\xe2\x82", "\xc3", "\uFFFD"},
		"a surrogate is lost at its second":   {"\xed", "\xa0", "\uFFFD\uFFFD"},
		"a rune that may still be completed":  {"\xf0\x9f", "\x98", ""},
		"a rune that is completed":            {"\xf0\x9f\x98", "\x80", "😀"},
		"the same rune with something behind": {"\xf0\x9f\x98", "\x80!", "😀!"},
	} {
		t.Run(name, func(t *testing.T) {
			e := newTextBuffer(nil, nil)
			if text, _, _ := e.push([]byte(tt.first)); text != "" {
				t.Fatalf("%q was released early", text)
			}
			if text, _, _ := e.push([]byte(tt.second)); text != tt.want {
				t.Errorf("%q, want %q", text, tt.want)
			}
		})
	}
}

func TestTextEdge_StopStrings(t *testing.T) {
	type step struct{ piece, text string }
	for name, tt := range map[string]struct {
		stops   []string
		steps   []step
		stopped string // by the last step
		flush   string
	}{
		"none":                                              {nil, []step{{"hello", "hello"}, {" world", " world"}}, "", ""},
		"empty ones do not count":                           {[]string{""}, []step{{"hello", "hello"}}, "", ""},
		"within a piece":                                    {[]string{"STOP"}, []step{{"one STOP two", "one "}}, "STOP", ""},
		"over three pieces":                                 {[]string{"STOP"}, []step{{"a S", "a "}, {"TO", ""}, {"P b", ""}}, "STOP", ""},
		"one that does not come true":                       {[]string{"STOP"}, []step{{"a STO", "a "}, {"RM", "STORM"}}, "", ""},
		"one that does not come before the end":             {[]string{"STOP"}, []step{{"a STO", "a "}}, "", "STO"},
		"nothing is shown after it":                         {[]string{"."}, []step{{"a.", "a"}, {"b", ""}, {"\xff", ""}}, ".", ""},
		"it may begin again inside itself":                  {[]string{"aab"}, []step{{"aa", ""}, {"a", "a"}, {"b", ""}}, "aab", ""},
		"the first to be complete ends the answer":          {[]string{"abcd", "bc"}, []step{{"xa", "x"}, {"bcd", "a"}}, "bc", ""},
		"also where a longer one might have come":           {[]string{"ab", "abc"}, []step{{"abc", ""}}, "ab", ""},
		"of two that end together the longer":               {[]string{"c", "abc", "bc"}, []step{{"xabc", "x"}}, "abc", ""},
		"of runes, split over pieces":                       {[]string{"世界"}, []step{{"hi \xe4\xb8", "hi "}, {"\x96\xe7", ""}, {"\x95\x8c!", ""}}, "世界", ""},
		"half of its runes come":                            {[]string{"世界"}, []step{{"世", ""}, {"人", "世人"}}, "", ""},
		"of replaced bytes":                                 {[]string{"\uFFFD"}, []step{{"a\xe2", "a"}, {"b", ""}}, "\uFFFD", ""},
		"a part of a rune behind a part of a stop string":   {[]string{"ab"}, []step{{"a\xe2\x82", ""}}, "", "a\uFFFD"},
		"of a byte that is no text, it matches no half":     {[]string{"\xa9"}, []step{{"é", "é"}}, "", ""},
		"a rune that breaks off inside a stop string's":     {[]string{"\uFFFDx"}, []step{{"\xe2x", ""}}, "\uFFFDx", ""},
		"the same one twice":                                {[]string{"x", "x"}, []step{{"axb", "a"}}, "x", ""},
		"an end in the middle of a rune can be a stop, too": {[]string{"\uFFFD"}, []step{{"a\xe2", "a"}}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			e := newTextBuffer(tt.stops, nil)
			var stopped string
			var ok bool
			for i, s := range tt.steps {
				var text string
				text, stopped, ok = e.push([]byte(s.piece))
				if text != s.text {
					t.Errorf("piece %d, %q: %q, want %q", i, s.piece, text, s.text)
				}
			}
			if stopped != tt.stopped || ok != (tt.stopped != "") {
				t.Errorf("stopped by %q, %v; want %q", stopped, ok, tt.stopped)
			}
			if text := e.flush(); text != tt.flush {
				t.Errorf("flushed %q, want %q", text, tt.flush)
			}
		})
	}
}

// Few different bytes make many near matches.
func TestTextEdge_ShowsAllThatItMayAtEachStep(t *testing.T) {
	alphabets := [][]string{
		{"a", "b"},
		{"a", "b", "c", "é", "世"},
		{"\xe4", "\xb8", "\x96", "a", "\xff", "\xed", "\xa0", "世", "\uFFFD"},
	}
	rapid.Check(t, func(t *rapid.T) {
		alphabet := rapid.SampledFrom(alphabets).Draw(t, "alphabet")
		str := func(maxLen int) *rapid.Generator[string] {
			return rapid.Custom(func(t *rapid.T) string {
				return strings.Join(rapid.SliceOfN(rapid.SampledFrom(alphabet), 1, maxLen).Draw(t, "bytes"), "")
			})
		}
		stops := rapid.SliceOfN(str(6).Filter(utf8.ValidString), 0, 4).Draw(t, "stops")
		whole := rapid.SliceOfN(str(8), 0, 12).Draw(t, "pieces")
		pieces := make([][]byte, len(whole))
		for i, s := range whole {
			pieces[i] = []byte(s)
		}
		if err := checkTextEdge(pieces, stops); err != nil {
			t.Fatal(err)
		}
	})
}

func FuzzTextEdge(f *testing.F) {
	f.Add([]byte("one STOP two"), "STOP", "OP t", uint8(3))
	f.Add([]byte("a\xf1\x80\x80\xe1\x80\xc2b\x80c\x80\xbfd"), "\uFFFDb", "", uint8(1))
	f.Add([]byte("\xed\xa0\x80\xf4\x90\x80\x80"), "\uFFFD\uFFFD\uFFFD", "x", uint8(2))
	f.Add([]byte("aaaaabaaab"), "aab", "aaaaaaaaab", uint8(4))
	f.Add([]byte("世界\xe4\xb8"), "界", "世", uint8(2))
	f.Fuzz(func(t *testing.T, data []byte, stop1, stop2 string, size uint8) {
		if len(data) > 300 || len(stop1) > 40 || len(stop2) > 40 { // the reference is slow
			return
		}
		var stops []string
		for _, stop := range []string{stop1, stop2} {
			if stop != "" && utf8.ValidString(stop) {
				stops = append(stops, stop)
			}
		}
		var pieces [][]byte
		for n := int(size%16) + 1; len(data) > 0; data = data[min(n, len(data)):] {
			pieces = append(pieces, data[:min(n, len(data))])
		}
		if err := checkTextEdge(pieces, stops); err != nil {
			t.Fatal(err)
		}
	})
}

// Sixteen long stop strings of nearly the same beginning are the worst case: each
// byte of the text must still cost about the same.
func BenchmarkTextEdge(b *testing.B) {
	for name, stops := range map[string][]string{"no stops": nil, "16 long stops": nearlyEqualStops()} {
		b.Run(name, func(b *testing.B) {
			text := []byte(strings.Repeat("a", 255))
			b.SetBytes(int64(len(text)))
			e := newTextBuffer(stops, nil)
			for b.Loop() {
				e.push(text)
			}
		})
	}
}

func nearlyEqualStops() (stops []string) {
	for i := range 16 {
		stops = append(stops, strings.Repeat("a", 240+i)+"b")
	}
	return stops
}
