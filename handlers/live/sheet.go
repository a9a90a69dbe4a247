package live

import (
	"context"
	"math"
	"slices"
	"strconv"
	"strings"

	"m40-llm/handlers/access"
	"m40-llm/infer/chat"
	"m40-llm/infer/sample"
	"m40-llm/store"
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
	Panel    Settings // of the chat
}

// Chat names the chat whose question is answered.
func (s *Sheet) Chat() string { return s.chat }

// Read returns a reader of the answers, row by row.
func (s *Sheet) Read() *CellReader { return s.read() }

// StartSheet begins to write a contact sheet. It takes the place of the last one of who, and fails with a
// *Conflict while that is being written.
func (s *Service) StartSheet(ctx context.Context, who Principal, chat string, n NewSheet) (*Sheet, error) {
	c, err := s.Chat(ctx, who, chat)
	if err != nil {
		return nil, err
	}
	if err := c.may(who, access.ActionAsk); err != nil {
		return nil, err
	}
	sheet, err := c.newSheet(n)
	if err != nil {
		return nil, err
	}
	return sheet, s.sheets.put(sheet, "make a contact sheet")
}

// Question returns a question of the branch, or with id 0 the last one, and the settings of the panel and
// the title of the chat.
func (c *Chat) Question(who Principal, id int64) (m Message, panel Settings, title string, err error) {
	if err := c.may(who, access.ActionRead); err != nil {
		return m, panel, "", err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for at := len(c.branch) - 1; at >= 0 && id == 0; at-- {
		if c.branch[at].Role != RoleModel {
			id = c.branch[at].ID
		}
	}
	at, err := c.branch.find("question", id, RoleUser)
	if err != nil {
		return m, panel, "", err
	}
	return c.branch[at].message(), c.panel.Settings, c.metadata.Title, nil
}

// newSheet returns a sheet that is not written yet.
func (c *Chat) newSheet(n NewSheet) (*Sheet, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, err := c.branch.find("question", n.Question, RoleUser)
	if err != nil {
		return nil, err
	}
	s := &Sheet{group: group{service: c.service, owner: c.owner, chat: c.id}, Question: n.Question, Prompt: c.branch[at].Text, Panel: c.panel.Settings}
	if s.Columns, s.Rows, err = n.places(); err != nil {
		return nil, err
	}
	base := c.panel.Settings
	base.MaxTokens = n.MaxTokens
	request := c.request(c.branch[:at+1], chat.Message{}, c.metadata.System)
	for _, row := range s.Rows {
		for _, column := range s.Columns {
			settings := base
			for _, v := range slices.Concat(row, column) {
				v.set(&settings)
			}
			if err := settings.Validate(); err != nil {
				return nil, err
			}
			t := c.newAnswer(c.metadata.System, settings)
			t.Parent = n.Question
			s.add(t, request)
		}
	}
	return s, nil
}

func (v SheetValue) set(s *Settings) {
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
		return nil, nil, invalid("down", "the sheet has %s across and down; choose another setting for one of them", n.Down.Key)
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
		return invalid("seeds", "the sheet has one answer: give several seeds, or several values of a setting")
	case cells > MaxCells:
		return invalid("seeds", "the sheet has %d answers, and at most %d fit: give fewer values or seeds", cells, MaxCells)
	case n.MaxTokens < 1:
		return invalid("max_tokens", "max_tokens is %d, but an answer of a sheet has a limit of at least 1 token", n.MaxTokens)
	case n.MaxTokens > MaxSheetTokens/cells:
		return invalid("max_tokens", "%d answers of up to %d tokens do not fit: a sheet has at most %d tokens, so set max_tokens to %d or less", cells, n.MaxTokens, MaxSheetTokens, MaxSheetTokens/cells)
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
		return nil, invalid(param, "the values have %d bytes, and at most %d are read", len(text), maxAxisText)
	}
	at := slices.IndexFunc(sample.Numbers(), func(n sample.Number) bool { return n.Name == key })
	number := sample.Number{Max: MaxSeed, Whole: true}
	if key != SeedKey {
		if at < 0 {
			return nil, invalid(param, "%q is no setting that a sheet can vary", shortened(key))
		}
		number = sample.Numbers()[at]
	}
	for word := range strings.FieldsSeq(strings.ReplaceAll(text, ";", " ")) {
		v, err := strconv.ParseFloat(strings.TrimSuffix(word, ","), 64)
		switch {
		case err != nil || math.IsNaN(v) || math.IsInf(v, 0):
			return nil, invalid(param, "%q is no number: write the values with spaces between them, and decimals with a point", shortened(word))
		case number.Whole && v != math.Trunc(v):
			return nil, invalid(param, "%s is %v, but it must be a whole number", key, v)
		case v < number.Min || v > number.Max:
			return nil, invalid(param, "%s is %v, but it must be from %v to %v", key, v, number.Min, number.Max)
		case slices.ContainsFunc(list, func(place []SheetValue) bool { return place[0].Value == v }):
			return nil, invalid(param, "%s has the value %v twice", key, v)
		}
		list = append(list, []SheetValue{{key, v}})
	}
	if len(list) == 0 {
		return nil, invalid(param, "%s has no values: write some with spaces between them", key)
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
func (s *Service) Sheet(ctx context.Context, who Principal, chat string) (*Sheet, error) {
	if _, err := s.Chat(ctx, who, chat); err != nil {
		return nil, err
	}
	sheet, ok := s.sheets.of(who.Owner)
	if !ok || sheet.chat != chat {
		return nil, nil
	}
	return sheet, nil
}

var errNoSheet = invalid("", "this chat has no contact sheet any more; make it again")

// StopSheet ends an answer of the contact sheet of a chat, or all of them if cell is negative.
func (s *Service) StopSheet(ctx context.Context, who Principal, chat string, cell int) error {
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
func (s *Service) Keep(ctx context.Context, who Principal, chat string, cell int) (message int64, err error) {
	sheet, err := s.Sheet(ctx, who, chat)
	if err != nil {
		return 0, err
	}
	if sheet == nil {
		return 0, errNoSheet
	}
	c, err := s.Chat(ctx, who, chat)
	if err != nil {
		return 0, err
	}
	done, err := c.command(ctx, who, access.ActionAsk, "keep an answer")
	if err != nil {
		return 0, err
	}
	defer done()
	made, answer, err := sheet.finished(cell)
	if err != nil {
		return 0, err
	}
	if made.kept != 0 {
		return made.kept, nil
	}
	if at, err := c.branch.find("question", sheet.Question, RoleUser); err == nil {
		if err := c.branch[:at].checkRoom(len(answer.Text) + len(answer.Reasoning)); err != nil {
			return 0, err
		}
	}
	var branch []store.Message
	err = c.commit(ctx, func(ctx context.Context) error {
		begun := store.NewAnswer{Parent: sheet.Question, Text: answer.Text, Reasoning: answer.Reasoning, Answer: answer.Answer}
		added, err := c.messages.AddAnswer(ctx, c.owner, c.id, begun)
		if err != nil {
			return c.absent(err, "question")
		}
		message = added.ID
		if _, err := c.messages.FinishAnswer(ctx, c.owner, c.id, message, answer); err != nil {
			return storeError(err)
		}
		branch, err = c.messages.Branch(ctx, c.owner, c.id)
		return err
	})
	if err != nil {
		return 0, err
	}
	sheet.keep(made, message)
	c.show(branch)
	c.changed()
	return message, nil
}

// finished returns a cell that has ended, and what is stored of its answer.
func (s *Sheet) finished(cell int) (*cell, store.Finish, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if cell < 0 || cell >= len(s.cells) {
		return nil, store.Finish{}, invalid("cell", "cell is %d, but there are %d", cell, len(s.cells))
	}
	c := s.cells[cell]
	t := c.run.turn
	switch {
	case t.Answer.State.Running():
		return nil, store.Finish{}, invalid("cell", "this answer is still being written: stop it, or wait until it has ended")
	case t.length() == 0:
		return nil, store.Finish{}, invalid("cell", "this answer has no text")
	}
	return c, t.end(t.Answer.State, t.Answer.Error), nil
}

// keep notes that a cell became a message.
func (s *Sheet) keep(c *cell, message int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.kept = message
	s.grew(c)
}
