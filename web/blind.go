package web

// Blind is the page on which a person compares two answers without names.
type Blind struct {
	Presets   []Preset // names and ids
	Models    []ModelRow
	First     string // id of the preset to begin with
	Chat      string // id of the chat of the question that is answered; empty: a text is
	ChatTitle string
	Question  int64
	Shown     bool   // two answers are there already, and the page shows them
	Text      string // what they answer
	Votes     int
	Board     []Standing
	MaxTokens int // suggested for each answer
	Limit     int // of it
}

// Standing is a row of the leaderboard.
type Standing struct {
	Name                 string
	Won, Lost, Tied, Bad int
	Share, Interval      string
	At, Low, High        float64 // the share and its interval, from 0 to 1
}

// first and second return the ids of the presets that the form begins with.
func (p Blind) first() string {
	for _, preset := range p.Presets {
		if preset.ID == p.First {
			return preset.ID
		}
	}
	if len(p.Presets) > 0 {
		return p.Presets[0].ID
	}
	return ""
}

func (p Blind) second() string {
	for _, preset := range p.Presets {
		if preset.ID != p.first() {
			return preset.ID
		}
	}
	return ""
}

// back returns the address of the page that leads here.
func (p Blind) back() string {
	if p.Chat != "" {
		return "/c/" + p.Chat
	}
	return "/presets"
}
