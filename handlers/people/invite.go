package people

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"strings"
	"sync"
	"time"

	"m40-llm/handlers/access"
	"m40-llm/infer/fault"
	"m40-llm/store"
)

// Invitation logs in one device of a person with either of its two secrets, once. The secrets are
// not stored, so they can be shown only when the invitation is created.
type Invitation struct {
	Code    string // for typing, such as 4F7K-09XM
	Link    string // for a QR code; 130 random bits
	Expires time.Time
}

// InvitationLife is how long an invitation is valid.
const InvitationLife = 5 * time.Minute

// ErrWrongCode is returned for a code that no valid invitation has.
var ErrWrongCode = fault.New(fault.CodeInvalidCode, "this code is wrong, was used, or is older than five minutes; ask for a new one")

// letters are the alphabet of codes, without letters that look alike. A code has 8 of them, or 40
// random bits, which suffices because guesses limits the number of tries.
const (
	letters    = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
	codeLength = 8
)

// invitations are the valid invitations, at most one for each person.
type invitations struct {
	mu       sync.Mutex
	byPerson map[string]invitation
}

type invitation struct {
	code, link store.TokenHash
	expires    time.Time
}

// Invite creates an invitation for a device of a person, and revokes an earlier one.
func (s *Service) Invite(ctx context.Context, who access.Principal, person string) (Invitation, error) {
	if err := mayChange(who, person); err != nil {
		return Invitation{}, err
	}
	if _, err := s.opt.Store.Person(ctx, person); err != nil {
		return Invitation{}, gone(err)
	}
	code := newCode()
	made := Invitation{Code: code[:codeLength/2] + "-" + code[codeLength/2:], Link: rand.Text(), Expires: s.opt.Now().Add(InvitationLife)}
	s.invited.mu.Lock()
	defer s.invited.mu.Unlock()
	s.invited.byPerson[person] = invitation{hashOf(code), hashOf(made.Link), made.Expires}
	return made, nil
}

func newCode() string {
	code := make([]byte, codeLength)
	_, _ = rand.Read(code) // never fails
	for i, b := range code {
		code[i] = letters[b%byte(len(letters))] // without bias: 32 divides 256
	}
	return string(code)
}

// asCode normalizes a code that a person typed. ok is false if it cannot be one.
func asCode(typed string) (code string, ok bool) {
	code = strings.NewReplacer("-", "", " ", "", "O", "0", "I", "1", "L", "1").Replace(strings.ToUpper(typed))
	return code, len(code) == codeLength && strings.Trim(code, letters) == ""
}

// redeem removes the invitation with a secret, and returns the person it was for.
func (i *invitations) redeem(secret store.TokenHash, now time.Time, of func(invitation) store.TokenHash) (person string, ok bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for person, made := range i.byPerson {
		hash := of(made)
		if now.Before(made.expires) && subtle.ConstantTimeCompare(hash[:], secret[:]) == 1 {
			delete(i.byPerson, person)
			return person, true
		}
	}
	return "", false
}

func (i *invitations) forget(person string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.byPerson, person)
}

// byLink redeems a link. Links are too long to be guessed, so their number of tries is not limited.
func (i *invitations) byLink(secret string, now time.Time) (person string, ok bool) {
	return i.redeem(hashOf(secret), now, func(made invitation) store.TokenHash { return made.link })
}

// byCode redeems a code.
func (i *invitations) byCode(code string, now time.Time) (person string, ok bool) {
	return i.redeem(hashOf(code), now, func(made invitation) store.TokenHash { return made.code })
}
