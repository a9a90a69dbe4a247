package people

import (
	"context"
	"crypto/rand"
	"errors"

	"m40-llm/handlers/access"
	"m40-llm/infer/fault"
	"m40-llm/store"
)

// ErrNoPerson is returned for a person, device or key that does not exist.
var ErrNoPerson = fault.New(fault.CodePersonNotFound, "this person, device or key is not there; it may have been removed")

// ErrNameTaken is returned for a name that another person has.
var ErrNameTaken = &fault.Error{Code: fault.CodeNameTaken, Param: "name", Message: "another person on this server has this name; choose another one"}

// gone converts the errors of the store for missing rows and taken names.
func gone(err error) error {
	switch {
	case errors.Is(err, store.ErrNotFound):
		return ErrNoPerson
	case errors.Is(err, store.ErrConflict):
		return ErrNameTaken
	}
	return err
}

func mayManage(who access.Principal, person string) error {
	return access.Authorize(who, access.ActionManage, access.Object{Kind: access.KindPerson, Owner: person})
}

func mayChange(who access.Principal, person string) error {
	return access.Authorize(who, access.ActionChange, access.Object{Kind: access.KindPerson, Owner: person})
}

// Account is a person with their credentials.
type Account struct {
	store.Person
	Devices []store.Device // most recently seen first
	Keys    []store.Key
}

// People returns all people, for the owner of the server.
func (s *Service) People(ctx context.Context, who access.Principal) (list []Account, err error) {
	if err := mayManage(who, ""); err != nil {
		return nil, err
	}
	all, err := s.opt.Store.People(ctx)
	if err != nil {
		return nil, err
	}
	for _, p := range all {
		account, err := s.account(ctx, p)
		if err != nil {
			return nil, err
		}
		list = append(list, account)
	}
	return list, nil
}

// Name returns the name of a person; empty if the person was removed. Visitors have none of their own.
func (s *Service) Name(ctx context.Context, person string) (string, error) {
	if access.IsVisitor(person) {
		return "A visitor", nil
	}
	p, err := s.opt.Store.Person(ctx, person)
	if errors.Is(err, store.ErrNotFound) {
		return "", nil
	}
	return p.Name, err
}

// Account returns one person.
func (s *Service) Account(ctx context.Context, who access.Principal, person string) (Account, error) {
	if err := mayChange(who, person); err != nil {
		return Account{}, err
	}
	p, err := s.opt.Store.Person(ctx, person)
	if err != nil {
		return Account{}, gone(err)
	}
	return s.account(ctx, p)
}

func (s *Service) account(ctx context.Context, p store.Person) (a Account, err error) {
	a.Person = p
	if a.Devices, err = s.opt.Store.Devices(ctx, p.ID); err != nil {
		return a, err
	}
	for i, d := range a.Devices {
		a.Devices[i].Seen = s.devicesSeen.at(d.ID, d.Seen)
	}
	if a.Keys, err = s.opt.Store.Keys(ctx, p.ID); err != nil {
		return a, err
	}
	for i, k := range a.Keys {
		a.Keys[i].Used = s.keysSeen.at(k.ID, k.Used)
	}
	return a, nil
}

// Add adds a person.
func (s *Service) Add(ctx context.Context, who access.Principal, name string) (store.Person, error) {
	if err := mayManage(who, ""); err != nil {
		return store.Person{}, err
	}
	p, err := s.opt.Store.AddPerson(ctx, name)
	return p, gone(err)
}

// Rename changes the name of a person.
func (s *Service) Rename(ctx context.Context, who access.Principal, person, name string) error {
	if err := mayChange(who, person); err != nil {
		return err
	}
	return gone(s.opt.Store.RenamePerson(ctx, person, name))
}

// ErrNotConfirmed is returned if the name that confirms a removal is not the person's.
var ErrNotConfirmed = errors.New("nothing was removed: the name that was written to confirm it is another one")

// Remove removes a person with everything of theirs, and cancels their requests. name must be the
// person's name, as a confirmation.
func (s *Service) Remove(ctx context.Context, who access.Principal, person, name string) error {
	if err := mayManage(who, person); err != nil {
		return err
	}
	p, err := s.opt.Store.Person(ctx, person)
	if err != nil {
		return gone(err)
	}
	if p.Name != name {
		return ErrNotConfirmed
	}
	if err := s.opt.Store.ErasePerson(ctx, person); err != nil {
		return gone(err)
	}
	s.invited.forget(person)
	s.end(Credential{Person: person})
	return nil
}

// Limit sets the limits of a person.
func (s *Service) Limit(ctx context.Context, who access.Principal, person string, l store.PersonLimits) error {
	if err := mayManage(who, person); err != nil {
		return err
	}
	return gone(s.opt.Store.LimitPerson(ctx, person, l))
}

// RevokeDevice logs a device out, and cancels its requests.
func (s *Service) RevokeDevice(ctx context.Context, who access.Principal, person string, id int64) error {
	if err := mayChange(who, person); err != nil {
		return err
	}
	if err := s.opt.Store.RemoveDevice(ctx, person, id); err != nil {
		return gone(err)
	}
	s.end(Credential{Person: person, Device: id})
	return nil
}

// CreateKey creates an API key and returns it. Only its hash is stored.
func (s *Service) CreateKey(ctx context.Context, who access.Principal, person, name string) (key string, err error) {
	if err := mayChange(who, person); err != nil {
		return "", err
	}
	key = "m40-" + rand.Text()
	_, err = s.opt.Store.AddKey(ctx, person, name, hashOf(key))
	return key, gone(err)
}

// RevokeKey removes an API key, and cancels the requests that it authenticated.
func (s *Service) RevokeKey(ctx context.Context, who access.Principal, person string, id int64) error {
	if err := mayChange(who, person); err != nil {
		return err
	}
	if err := s.opt.Store.RemoveKey(ctx, person, id); err != nil {
		return gone(err)
	}
	s.end(Credential{Person: person, Key: id})
	return nil
}

// LogOut logs out the device with this cookie.
func (s *Service) LogOut(ctx context.Context, cookie string) error {
	known, err := s.ByDevice(ctx, cookie)
	if err != nil {
		return err
	}
	return s.RevokeDevice(ctx, known.Principal, known.Credential.Person, known.Credential.Device)
}
