package web

import "strconv"

// Sheet is the page of the contact sheet of a question.
type Sheet struct {
	Chat      string
	Title     string
	Question  int64
	Prompt    string
	Shown     bool // the sheet is made already, and the page shows it
	MaxTokens int  // suggested for each answer
	Settings  []SheetSetting
}

// SheetSetting is a setting that a sheet can vary.
type SheetSetting struct{ Key, Label, Values string }

func (s Sheet) question() string  { return strconv.FormatInt(s.Question, 10) }
func (s Sheet) maxTokens() string { return strconv.Itoa(s.MaxTokens) }
