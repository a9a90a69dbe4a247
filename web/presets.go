package web

import "strings"

// Presets is the page of presets.
type Presets struct {
	List    []Preset
	Against string  // id of the one that the others are compared with
	Deleted *Preset // can be brought back; nil: none
}

// Preset is one of them, beside the one that it is compared with.
type Preset struct {
	ID, Name string
	About    string // what a built-in one is for
	System   string
	Builtin  bool
	Base     string // name of the one that it is compared with
	Rows     []DiffRow
}

// own reports whether a person has made presets.
func (p Presets) own() bool {
	for _, preset := range p.List {
		if !preset.Builtin {
			return true
		}
	}
	return false
}

// differing are the rows that are worth reading.
func (p Preset) differing() (rows []DiffRow) {
	for _, r := range p.Rows {
		if r.Differs {
			rows = append(rows, r)
		}
	}
	return rows
}

func (p Preset) note() string {
	if n := len(p.differing()); n > 0 {
		return counted(n, "setting differs", "settings differ") + " from " + p.Base
	}
	return "the same as " + p.Base
}

func counted(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return Thousands(n) + " " + more
}

// DiffRow is one setting of two presets.
type DiffRow struct {
	Label   string
	Is, Was string
	Differs bool
	Scaled  bool    // At and From are where the two lie on the slider's axis
	At      float64 // 0 to 1
	From    float64
}

// Differs compares two values of a parameter.
func (p Param) Differs(is, was float64) DiffRow {
	return DiffRow{Label: p.Label, Is: p.word(is), Was: p.word(was), Differs: is != was, Scaled: true, At: p.position(is), From: p.position(was)}
}

// DiffText compares two texts.
func DiffText(label, is, was string) DiffRow {
	word := func(text string) string {
		if strings.TrimSpace(text) == "" {
			return "none"
		}
		return text
	}
	return DiffRow{Label: label, Is: word(is), Was: word(was), Differs: is != was}
}

// word is a value as the panel shows it.
func (p Param) word(v float64) string {
	if p.On != 0 && v == p.On {
		return "on"
	}
	if p.Off != "" && v == p.OffAt {
		return p.Off
	}
	return p.format(v)
}

func share(v float64) string { return number(100*v) + "%" }

// begin and length draw the bar between the two values.
func (r DiffRow) begin() string  { return share(min(r.At, r.From)) }
func (r DiffRow) length() string { return share(max(r.At, r.From) - min(r.At, r.From)) }
