package jinja

import (
	"errors"
	"reflect"
	"strings"
	"testing"
)

func addSeeds(f *testing.F, add func(source string)) {
	for _, c := range loadLanguage(f).Cases {
		add(c.Template)
	}
	for _, source := range attacks()[:40] {
		add(source)
	}
	for _, v := range hostileValues {
		add("{% set v = " + v + " %}{{ v|unique|sort|list }}{{ v|join(v) }}{{ [v, v]|map('select')|list }}")
	}
}

func FuzzParse(f *testing.F) {
	addSeeds(f, func(source string) { f.Add(source) })
	f.Fuzz(func(t *testing.T, source string) {
		tmpl, err := Parse(source)
		var syntax *SyntaxError
		var limit *LimitError
		switch {
		case err == nil && tmpl == nil:
			t.Error("neither a template nor an error")
		case err != nil && !errors.As(err, &syntax) && !errors.As(err, &limit):
			t.Errorf("unexpected kind of error: %T %v", err, err)
		case syntax != nil && syntax.Line < 1:
			t.Errorf("error without a line: %v", err)
		}
	})
}

func FuzzRender(f *testing.F) {
	addSeeds(f, func(source string) { f.Add(source, "hello") })
	small := Limits{Steps: 50_000, Output: 1 << 18, Alloc: 8 << 20}
	f.Fuzz(func(t *testing.T, source, content string) {
		tmpl, err := Parse(source)
		if err != nil {
			return
		}
		request := []byte(`{"a":3,"b":2.5,"n":null,"t":true,"l":[3,1,2],"d":{"x":1,"y":[1,{"k":"v"}]},"s":` + jsonString(content) +
			`,"messages":[{"role":"user","content":` + jsonString(nonce+content) + `},{"role":"assistant","content":` + jsonString(content+nonce) + `}]}`)
		o := Options{Now: testNow, Limits: small}
		var p Text
		most := uint64(2*small.Alloc + 128*small.Steps + 64*len(request))
		if took := allocated(func() { p, err = renderJSON(tmpl, request, o) }); took > most {
			t.Fatalf("it allocated %d bytes, at most %d are allowed, and ended with %v", took, most, err)
		}
		var render *RenderError
		var raised *RaisedError
		var limit *LimitError
		if err != nil {
			if !errors.As(err, &render) && !errors.As(err, &raised) && !errors.As(err, &limit) {
				t.Fatalf("unexpected kind of error: %T %v", err, err)
			}
			return
		}
		previous := Origin(-1)
		for piece, from := range p.Pieces {
			if piece == "" || from == previous {
				t.Fatalf("pieces are not merged: %q", p)
			}
			if previous = from; from == FromTemplate && strings.Contains(piece, nonce) && !strings.Contains(source, "7q") {
				t.Fatalf("content became the template's: %q", p)
			}
		}
		again, err := renderJSON(tmpl, request, o)
		if err != nil || !reflect.DeepEqual(again, p) {
			t.Fatalf("a second rendering differs: %q, %q, %v", p, again, err)
		}
	})
}
