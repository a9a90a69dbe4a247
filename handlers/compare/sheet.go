package compare

import (
	"context"
	"math"
	"slices"
	"strconv"
	"strings"

	"m40-llm/handlers/live"
	"m40-llm/handlers/setting"
	"m40-llm/infer/fault"
	"m40-llm/infer/sample"
)

// Limits of a contact sheet. The candidates of all tokens are in memory until the sheet is dropped: some
// 1.2 kB a token.
const (
	MaxCells       = 64
	MaxSheetTokens = 16384 // of all answers of a sheet together
	maxAxisText    = 1000  // bytes
)

// SeedKey is the name of the seed among the settings of a sheet. The others are those of sample.Numbers.
const SeedKey = "seed"

// Axis is a setting and its values.
type Axis struct {
	Key    string `json:"key"`    // as in sample.Number; empty: none
	Values string `json:"values"` // numbers with spaces between them
}

// NewSheet asks for a contact sheet: a table of answers to one question of a chat, each with other settings.
// What it does not say is as the chat's panel has it.
type NewSheet struct {
	Question  int64  `json:"question"`
	MaxTokens int    `json:"max_tokens"` // of each answer
	Across    Axis   `json:"across"`     // a column for each value; without a setting, for each seed
	Down      Axis   `json:"down"`       // a row for each value and seed
	Seeds     string `json:"seeds"`      // as Axis.Values
}

// SheetValue is a value of a setting in a column or a row.
type SheetValue struct {
	Key   string  `json:"key"`
	Value float64 `json:"value"`
}

// Sheet is a contact sheet. It belongs to a person, who has one at a time, and is in memory only; answers
// of it become messages of the chat by Keep.
type Sheet struct {
	group
	Question int64
	Prompt   string         // text of the question
	Columns  [][]SheetValue // what the answers of each column have in common
	Rows     [][]SheetValue
	Panel    setting.Settings // of the chat
}

// Read returns a reader of the answers, row by row.
func (s *Sheet) Read() *CellReader { return s.read() }

// StartSheet begins to write a contact sheet. It takes the place of the last one of who, and fails with a
// *owned.Conflict while that is being written.
func (s *Service) StartSheet(ctx context.Context, who live.Principal, chat string, n NewSheet) (*Sheet, error) {
	c, err := s.chats.Chat(ctx, who, chat)
	if err != nil {
		return nil, err
	}
	sheet, err := newSheet(c, who, n)
	if err != nil {
		return nil, err
	}
	return sheet, put(s, &s.sheets, sheet, "make a contact sheet")
}

// newSheet returns a sheet for a question of c that is not written yet.
func newSheet(c *live.Chat, who live.Principal, n NewSheet) (*Sheet, error) {
	s := &Sheet{group: group{owner: who.Owner, chat: c.ID()}, Question: n.Question}
	text, attempts, err := c.Attempts(who, n.Question, func(panel setting.Settings) (list []setting.Settings, err error) {
		s.Panel = panel
		if s.Columns, s.Rows, err = n.places(); err != nil {
			return nil, err
		}
		for _, row := range s.Rows {
			for _, column := range s.Columns {
				settings := panel
				settings.MaxTokens = n.MaxTokens
				for _, v := range slices.Concat(row, column) {
					v.set(&settings)
				}
				list = append(list, settings)
			}
		}
		return list, nil
	})
	s.Prompt = text
	s.add(attempts...)
	return s, err
}

func (v SheetValue) set(s *setting.Settings) {
	if v.Key == SeedKey {
		s.Seed = int64(v.Value)
		return
	}
	at := slices.IndexFunc(sample.Numbers(), func(n sample.Number) bool { return n.Name == v.Key })
	sample.Numbers()[at].Set(&s.Params, v.Value)
}

// places returns the columns and rows of the sheet.
func (n NewSheet) places() (columns, rows [][]SheetValue, err error) {
	seeds, err := values(SeedKey, "seeds", n.Seeds)
	if err != nil {
		return nil, nil, err
	}
	across, err := n.Across.values("across")
	if err != nil {
		return nil, nil, err
	}
	down, err := n.Down.values("down")
	if err != nil {
		return nil, nil, err
	}
	if n.Down.Key != "" && n.Down.Key == n.Across.Key {
		return nil, nil, fault.Invalid("down", "the sheet has %s across and down; choose another setting for one of them", n.Down.Key)
	}
	if n.Across.Key == "" {
		across, seeds = seeds, [][]SheetValue{nil}
	}
	for _, value := range down {
		for _, seed := range seeds {
			rows = append(rows, slices.Concat(value, seed))
		}
	}
	return across, rows, n.checkSize(len(across) * len(rows))
}

// checkSize returns an error if so many cells do not fit into a sheet.
func (n NewSheet) checkSize(cells int) error {
	switch {
	case cells < 2:
		return fault.Invalid("seeds", "the sheet has one answer: give several seeds, or several values of a setting")
	case cells > MaxCells:
		return fault.Invalid("seeds", "the sheet has %d answers, and at most %d fit: give fewer values or seeds", cells, MaxCells)
	case n.MaxTokens < 1:
		return fault.Invalid("max_tokens", "max_tokens is %d, but an answer of a sheet has a limit of at least 1 token", n.MaxTokens)
	case n.MaxTokens > MaxSheetTokens/cells:
		return fault.Invalid("max_tokens", "%d answers of up to %d tokens do not fit: a sheet has at most %d tokens, so set max_tokens to %d or less", cells, n.MaxTokens, MaxSheetTokens, MaxSheetTokens/cells)
	}
	return nil
}

// values returns the values of the axis, or one empty place if it has no setting.
func (a Axis) values(param string) ([][]SheetValue, error) {
	if a.Key == "" {
		return [][]SheetValue{nil}, nil
	}
	return values(a.Key, param, a.Values)
}

// values returns the values that text has for a setting. An error names param.
func values(key, param, text string) (list [][]SheetValue, err error) {
	if len(text) > maxAxisText {
		return nil, fault.Invalid(param, "the values have %d bytes, and at most %d are read", len(text), maxAxisText)
	}
	at := slices.IndexFunc(sample.Numbers(), func(n sample.Number) bool { return n.Name == key })
	number := sample.Number{Max: setting.MaxSeed, Whole: true}
	if key != SeedKey {
		if at < 0 {
			return nil, fault.Invalid(param, "%q is no setting that a sheet can vary", shortened(key))
		}
		number = sample.Numbers()[at]
	}
	for word := range strings.FieldsSeq(strings.ReplaceAll(text, ";", " ")) {
		v, err := strconv.ParseFloat(strings.TrimSuffix(word, ","), 64)
		switch {
		case err != nil || math.IsNaN(v) || math.IsInf(v, 0):
			return nil, fault.Invalid(param, "%q is no number: write the values with spaces between them, and decimals with a point", shortened(word))
		case number.Whole && v != math.Trunc(v):
			return nil, fault.Invalid(param, "%s is %v, but it must be a whole number", key, v)
		case v < number.Min || v > number.Max:
			return nil, fault.Invalid(param, "%s is %v, but it must be from %v to %v", key, v, number.Min, number.Max)
		case slices.ContainsFunc(list, func(place []SheetValue) bool { return place[0].Value == v }):
			return nil, fault.Invalid(param, "%s has the value %v twice", key, v)
		}
		list = append(list, []SheetValue{{key, v}})
	}
	if len(list) == 0 {
		return nil, fault.Invalid(param, "%s has no values: write some with spaces between them", key)
	}
	return list, nil
}

// shortened returns text that can be quoted in an error.
func shortened(text string) string {
	const most = 40
	if len(text) > most {
		return strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}

// Sheet returns the contact sheet that who has of a chat; nil if there is none.
func (s *Service) Sheet(ctx context.Context, who live.Principal, chat string) (*Sheet, error) {
	if _, err := s.chats.Chat(ctx, who, chat); err != nil {
		return nil, err
	}
	sheet, ok := s.sheets.of(who.Owner)
	if !ok || sheet.chat != chat {
		return nil, nil
	}
	return sheet, nil
}

var errNoSheet = fault.Invalid("", "this chat has no contact sheet any more; make it again")

// StopSheet ends an answer of the contact sheet of a chat, or all of them if cell is negative.
func (s *Service) StopSheet(ctx context.Context, who live.Principal, chat string, cell int) error {
	sheet, err := s.Sheet(ctx, who, chat)
	if err != nil {
		return err
	}
	if sheet == nil {
		return errNoSheet
	}
	return sheet.stop(cell)
}

// Keep makes an answer of the contact sheet of a chat a version of the answer to its question, and shows
// it. It returns the message.
func (s *Service) Keep(ctx context.Context, who live.Principal, chat string, cell int) (message int64, err error) {
	sheet, err := s.Sheet(ctx, who, chat)
	if err != nil {
		return 0, err
	}
	if sheet == nil {
		return 0, errNoSheet
	}
	c, err := s.chats.Chat(ctx, who, chat)
	if err != nil {
		return 0, err
	}
	made, err := sheet.finished(cell)
	if err != nil {
		return 0, err
	}
	return c.Keep(ctx, who, made)
}

// finished returns a cell that has ended with a text.
func (s *Sheet) finished(cell int) (*live.Attempt, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if cell < 0 || cell >= len(s.cells) {
		return nil, fault.Invalid("cell", "cell is %d, but there are %d", cell, len(s.cells))
	}
	c := s.cells[cell]
	switch {
	case c.Running():
		return nil, fault.Invalid("cell", "this answer is still being written: stop it, or wait until it has ended")
	case c.isEmpty():
		return nil, fault.Invalid("cell", "this answer has no text")
	}
	return c.Attempt, nil
}
