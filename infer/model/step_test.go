package model_test

import (
	"slices"
	"testing"

	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
	"m40-llm/infer/gguf/gguftest"
	"m40-llm/infer/model"
	"m40-llm/infer/ref"
)

func TestAStepIsCollectedOnceWithItsTicket(t *testing.T) {
	f, err := gguf.Parse(gguftest.TinyLlama(gguftest.Llama{}))
	if err != nil {
		t.Fatal(err)
	}
	m := open(t, f, func() (device.Device, error) { return ref.New(), nil }, gguf.F32)
	b := &device.Batch{
		Tokens: []int32{5, 6, 7}, Pos: []int32{0, 1, 0}, Seq: []int32{0, 0, 1}, Tables: [][][]int32{{{5}, {1}}}, Out: []int32{1, 2},
	}
	if _, err := m.Collect(0); err == nil {
		t.Error("a step that was not submitted was collected")
	}
	ticket, err := m.Submit(b)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Submit(b); err == nil {
		t.Error("a second step was submitted before the first was collected")
	}
	if _, err := m.Collect(ticket + 1); err == nil {
		t.Error("a step was collected with another ticket")
	}
	got, err := m.Collect(ticket)
	if want := []model.Result{{Seq: 0, Pos: 1, Row: 0}, {Seq: 1, Pos: 0, Row: 1}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	if _, err := m.Collect(ticket); err == nil {
		t.Error("a step was collected twice")
	}
}
