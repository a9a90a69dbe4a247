package store

import "testing"

func TestVotesAreThoseOfTheirPersonAndGoWithThem(t *testing.T) {
	s := newStore(t)
	anna := must[Person](t)(s.AddPerson(ctx, "Anna"))
	for _, v := range []Vote{{First: "Precise", Second: "Balanced", Result: VoteFirst}, {First: "Balanced", Second: "Precise", Result: VoteTie}, {First: "Balanced", Second: "Precise", Result: VoteBad}} {
		mustDo(t, s.AddVote(ctx, anna.ID, v))
	}
	mustDo(t, s.AddVote(ctx, OwnerID, Vote{First: "a", Second: "b", Result: VoteSecond}))
	got := must[[]Vote](t)(s.Votes(ctx, anna.ID))
	if len(got) != 3 || got[2].Result != VoteBad || got[0].First != "Precise" || got[0].Result != VoteFirst || got[1].Result != VoteTie || got[0].Created.IsZero() {
		t.Errorf("Anna's votes are %+v", got)
	}
	if err := s.AddVote(ctx, anna.ID, Vote{First: "a", Second: "b", Result: "both"}); err == nil {
		t.Error("a vote for both is stored")
	}
	if err := s.AddVote(ctx, anna.ID, Vote{Second: "b", Result: VoteTie}); err == nil {
		t.Error("a vote without a name is stored")
	}
	mustDo(t, s.DeleteVotes(ctx, OwnerID))
	if got := must[[]Vote](t)(s.Votes(ctx, OwnerID)); len(got) != 0 {
		t.Errorf("after their reset the owner's votes are %+v", got)
	}
	mustDo(t, s.ErasePerson(ctx, anna.ID))
	if got := must[[]Vote](t)(s.Votes(ctx, anna.ID)); len(got) != 0 {
		t.Errorf("votes of a person who was erased are %+v", got)
	}
}
