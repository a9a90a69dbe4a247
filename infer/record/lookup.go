package record

// Lookup counts the tokens that were drafted, by prompt lookup or a model: computed before it was known that they
// would be drawn.
type Lookup struct {
	Drafted  int     `json:"drafted"`
	Accepted int     `json:"accepted"`       // of Drafted, those that were drawn: each saved a step
	By       string  `json:"by,omitempty"`   // what drafted: lookup, or the name of a model; several are separated by commas
	Gain     float64 `json:"gain,omitempty"` // the speed of decode over that without drafts, by the measured times of steps; 0: not known
}

// Share returns the accepted share of the drafted tokens; 0 if there are none.
func (l Lookup) Share() float64 { return float64(l.Accepted) / float64(max(1, l.Drafted)) }

// Valid reports whether l can be what an engine counted. The lookup of an import may be anything.
func (l Lookup) Valid() bool {
	const most = 1 << 40
	return l.Accepted >= 0 && l.Accepted <= l.Drafted && l.Drafted <= most && len(l.By) <= 1<<10 && l.Gain >= 0 && l.Gain <= 1<<10
}
