package readtext

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func TestJSONValuesBoundWhiteSpaceBetweenValuesAlone(t *testing.T) {
	long, most := strings.Repeat(" ", MaxSpace+1), strings.Repeat("\n", MaxSpace)
	for name, tc := range map[string]struct {
		text   string
		passes bool
	}{
		"before the value":                {long + "{}", false},
		"between values":                  {`{"a":` + long + `1}`, false},
		"behind the value":                {"[]" + long, false},
		"the most that passes, twice":     {"[1," + most + "2," + most + "3]", true},
		"inside a text":                   {`["` + long + `"]`, true},
		"inside a text, behind a quote":   {`["\"` + long + `"]`, true},
		"behind a text that ends in a \\": {`["\\"` + long + `]`, false},
	} {
		for _, r := range []io.Reader{strings.NewReader(tc.text), iotest.OneByteReader(strings.NewReader(tc.text))} {
			values := NewJSONValues(r, io.ErrShortBuffer)
			values.Allow(len(tc.text) + 1)
			got, err := io.ReadAll(values)
			if tc.passes && (err != nil || string(got) != tc.text) || !tc.passes && !errors.Is(err, ErrSpace) {
				t.Errorf("%s: %d of %d bytes, %v", name, len(got), len(tc.text), err)
			}
		}
	}
}

func TestJSONValuesBoundWhatIsReadForAValue(t *testing.T) {
	tooLong := errors.New("too long")
	values := NewJSONValues(strings.NewReader(`[1,2,3]`), tooLong)
	for _, more := range []string{"[1,", "2,3"} {
		values.Allow(3)
		if got, err := io.ReadAll(values); string(got) != more || !errors.Is(err, tooLong) {
			t.Errorf("of 3 bytes that are allowed, %q was read, want %q: %v", got, more, err)
		}
	}
	values.Allow(3)
	if got, err := io.ReadAll(values); string(got) != "]" || err != nil {
		t.Errorf("at the end %q was read: %v", got, err)
	}
}
