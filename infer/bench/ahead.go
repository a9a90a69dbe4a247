package bench

import (
	"errors"
	"syscall"
	"time"

	"m40-llm/infer/device"
	"m40-llm/infer/model"
	"m40-llm/infer/sample"
)

// Ahead is the speed of an answer whose tokens the host samples with the default settings, on a device that can draw
// tokens itself: if each step waits for the host, and with steps ahead.
type Ahead struct {
	WaitTokS float64 `json:"wait_tok_s"`
	TokS     float64 `json:"tok_s"`
	WaitCPU  float64 `json:"wait_cpu_us"` // time that the process computes on the CPU, in microseconds a token
	CPU      float64 `json:"cpu_us"`
	Missed   float64 `json:"missed"` // share of the tokens that the device drew and the host did not
}

// ahead measures answers after the first prompt, in turn.
func (b *rounds) ahead(r *Result) error {
	if b.model.Depth() < 2 {
		return errors.New("the device computes no steps ahead, which --ahead would measure")
	}
	var rates, cpu [2][]float64 // without steps ahead, and with them
	missed := 0
	for i := range b.o.Repeat {
		b.o.Progress("measuring steps ahead", int64(i), int64(b.o.Repeat))
		for k := range 2 {
			before := cpuTime()
			seconds, err := timed(func() error {
				n, err := b.sampled(b.o.Prompts[0], b.o.Answer, k == 1)
				missed += n
				return err
			})
			if err != nil {
				return err
			}
			rates[k] = append(rates[k], float64(b.o.Answer)/seconds)
			cpu[k] = append(cpu[k], float64((cpuTime()-before).Microseconds())/float64(b.o.Answer))
		}
	}
	r.Ahead = &Ahead{
		WaitTokS: median(rates[0]), TokS: median(rates[1]), WaitCPU: median(cpu[0]), CPU: median(cpu[1]),
		Missed: float64(missed) / float64(b.o.Repeat*b.o.Answer),
	}
	return nil
}

// sampled writes an answer of n tokens after prompt tokens, and returns how many the device drew wrong.
func (b *rounds) sampled(prompt, n int, ahead bool) (missed int, err error) {
	params, most := sample.DefaultParams(), 1
	if params.Seed = 1; ahead {
		most = b.model.Depth()
	}
	chain, err := sample.NewChain(params, vocabulary(b.model.Config().Vocab))
	if err != nil {
		return 0, err
	}
	var tickets []model.Ticket
	token := b.token(prompt)
	for done := 0; done < n; done++ {
		for len(tickets) < most && done+len(tickets) < n {
			pos := prompt + done + len(tickets)
			batch := &device.Batch{
				Tokens: []int32{token}, Pos: []int32{int32(pos)}, Seq: []int32{0}, Out: []int32{0}, Tables: b.tables(1), States: states(1), Ahead: len(tickets) > 0,
			}
			if ahead {
				batch.Draws = []device.Draw{{Temperature: params.Temperature, TopK: params.TopK, TopP: params.TopP, MinP: params.MinP, Seed: params.Seed, Pos: pos + 1}}
			}
			ticket, err := b.model.Submit(batch)
			if err != nil {
				return missed, err
			}
			tickets = append(tickets, ticket)
		}
		if _, err := b.model.Collect(tickets[0]); err != nil {
			return missed, err
		}
		tickets = tickets[1:]
		if token, err = b.sample(chain, prompt+done+1); err != nil || !ahead {
			if err != nil {
				return missed, err
			}
			continue
		}
		drawn, err := b.model.Drawn(0)
		if err != nil {
			return missed, err
		}
		if drawn == token {
			continue
		}
		missed++
		for _, ticket := range tickets {
			if _, err := b.model.Collect(ticket); err != nil {
				return missed, err
			}
		}
		tickets = nil
	}
	return missed, b.ctx.Err()
}

// sample draws the token at position pos from the row of the last step.
func (b *rounds) sample(chain *sample.Chain, pos int) (int32, error) {
	c, err := b.model.Candidates(0)
	if err != nil {
		return 0, err
	}
	row := sample.Row{IDs: c.IDs, Logits: c.Logits, Max: c.Max, Mass: c.Mass, Dot: c.Dot, Count: c.Count, NotFinite: c.Bad >= 0}
	row.Fetch = func() ([]float32, error) {
		all := make([]float32, b.model.Config().Vocab)
		return all, b.model.Logits(all, 0)
	}
	choice, err := chain.Next(sample.Input{Row: row, Pos: pos})
	return choice.ID, err
}

// vocabulary is a vocabulary of so many tokens without text.
type vocabulary int

func (v vocabulary) Size() int          { return int(v) }
func (v vocabulary) Piece(int32) []byte { return nil }

// cpuTime returns how long the process has computed on the CPU.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
