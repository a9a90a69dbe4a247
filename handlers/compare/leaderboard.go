package compare

import (
	"cmp"
	"context"
	"math"
	"slices"

	"m40-llm/handlers/access"
	"m40-llm/handlers/live"
	"m40-llm/handlers/owned"
	"m40-llm/store"
)

// Standing is how a contestant fares in the votes of one person.
type Standing struct {
	Name  string  `json:"name"`
	Won   int     `json:"won"`
	Lost  int     `json:"lost"`
	Tied  int     `json:"tied"`
	Bad   int     `json:"bad"`   // votes that neither answer was good
	Share float64 `json:"share"` // of the decided votes that it won; 0 if there are none
	Low   float64 `json:"low"`   // Wilson interval of Share at 95 %
	High  float64 `json:"high"`
}

// Leaderboard returns how the contestants of who fare, the best first, and the votes.
func (s *Service) Leaderboard(ctx context.Context, who live.Principal) ([]Standing, []store.Vote, error) {
	if err := owned.Authorize(who, access.ActionRead, access.Object{Kind: access.KindSetting, Owner: who.Owner}); err != nil {
		return nil, nil, err
	}
	if s.votes == nil {
		return nil, nil, nil
	}
	votes, err := s.votes.Votes(ctx, who.Owner)
	if err != nil {
		return nil, nil, owned.StoreError(err)
	}
	return standings(votes), votes, nil
}

// ResetVotes deletes the votes of who.
func (s *Service) ResetVotes(ctx context.Context, who live.Principal) error {
	if err := owned.Authorize(who, access.ActionChange, access.Object{Kind: access.KindSetting, Owner: who.Owner}); err != nil {
		return err
	}
	if s.votes == nil {
		return nil
	}
	if err := s.votes.DeleteVotes(ctx, who.Owner); err != nil {
		return owned.StoreError(err)
	}
	return nil
}

// standings counts votes.
func standings(votes []store.Vote) []Standing {
	byName := map[string]*Standing{}
	of := func(name string) *Standing {
		if byName[name] == nil {
			byName[name] = &Standing{Name: name}
		}
		return byName[name]
	}
	for _, v := range votes {
		first, second := of(v.First), of(v.Second)
		switch v.Result {
		case store.VoteFirst:
			first.Won++
			second.Lost++
		case store.VoteSecond:
			first.Lost++
			second.Won++
		case store.VoteBad:
			first.Bad++
			second.Bad++
		default:
			first.Tied++
			second.Tied++
		}
	}
	list := make([]Standing, 0, len(byName))
	for _, s := range byName {
		if n := s.Won + s.Lost; n > 0 {
			s.Share = float64(s.Won) / float64(n)
		}
		s.Low, s.High = wilson(s.Won, s.Won+s.Lost)
		list = append(list, *s)
	}
	slices.SortFunc(list, func(a, b Standing) int {
		return cmp.Or(cmp.Compare(b.Share, a.Share), cmp.Compare(b.Won, a.Won), cmp.Compare(a.Name, b.Name))
	})
	return list
}

// wilson returns the Wilson score interval of won out of n at 95 %; without a vote, from 0 to 1.
func wilson(won, n int) (low, high float64) {
	if n == 0 {
		return 0, 1
	}
	const z = 1.959963984540054 // quantile of the normal distribution
	count, share := float64(n), float64(won)/float64(n)
	scale := 1 + z*z/count
	middle := (share + z*z/(2*count)) / scale
	half := z / scale * math.Sqrt(share*(1-share)/count+z*z/(4*count*count))
	return max(0, middle-half), min(1, middle+half)
}
