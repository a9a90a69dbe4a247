package view

import (
	"math"

	"m40-llm/handlers/inspect"
)

// Sight is what can be asked of the pictures before an answer.
type Sight struct {
	Pictures []SightPicture `json:"pictures"`
	Loaded   bool           `json:"loaded"` // the model is loaded
}

// SightPicture is a picture of the messages before an answer.
type SightPicture struct {
	Hash      string     `json:"hash"`
	Width     int        `json:"width"`
	Height    int        `json:"height"`
	Divisions []Division `json:"divisions"`
}

// Division divides a picture into parts, row by row.
type Division struct {
	X       []int   `json:"x"`       // pixels at which the columns of parts end
	Y       []int   `json:"y"`       // and the rows
	Prompts int     `json:"prompts"` // that are still to be scored
	Seconds float64 `json:"seconds"` // that this takes, as expected; 0: not known
}

// Looked is what the parts of a picture count for a token of an answer.
type Looked struct {
	X []int `json:"x"` // pixels at which the columns of parts end
	Y []int `json:"y"` // and the rows

	Whole   float64    `json:"whole"`   // log probability of the token with the whole picture
	Without []*float64 `json:"without"` // without each part, row by row; null: not known yet
}

// SightOf describes the pictures before an answer.
func SightOf(s *inspect.Sight) Sight {
	v := Sight{Loaded: s.Loaded}
	for _, p := range s.Pictures {
		shown := SightPicture{Hash: p.Hash, Width: p.Width, Height: p.Height}
		for _, d := range p.Divisions {
			x, y := d.Edges()
			shown.Divisions = append(shown.Divisions, Division{X: x, Y: y, Prompts: d.Prompts, Seconds: d.Takes.Seconds()})
		}
		v.Pictures = append(v.Pictures, shown)
	}
	return v
}

// LookedOf describes what the parts of a picture count.
func LookedOf(l *inspect.Looked) Looked {
	v := Looked{Whole: l.Whole, Without: make([]*float64, len(l.Without))}
	v.X, v.Y = l.Edges()
	for i, x := range l.Without {
		if !math.IsNaN(x) {
			v.Without[i] = &x
		}
	}
	return v
}
