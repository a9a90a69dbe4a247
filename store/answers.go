package store

import (
	"context"
	"database/sql"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"m40-llm/infer/record"
)

// Answer is how a message was made: what one needs to judge it and to make it again.
type Answer struct {
	record.Answer
	Settings json.RawMessage // as the person set them
	System   string          // system prompt
	Seed     int64
	Context  int             // positions that the engine could use
	Error    json.RawMessage // null unless it failed

	Prefix          int     // bytes of the text that a person wrote: the tokens are those of what follows
	ReasoningPrefix int     // the same of the reasoning
	Edited          bool    // a person wrote the beginning of the answer
	LogProb         float64 // sum of the log probabilities of the first Scored tokens, in the model's own distribution
	Scored          int     // 0: LogProb is not known
	Call            *Call   // of a tool, with which it ended; nil: none
	Tokens          []int32 // ids; only Messages and Tokens read them
}

// Call is a tool that a model wants to be called. Arguments are a JSON object.
type Call struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// NewAnswer is an answer that begins. A fork or a continuation begins with the text
// and the tokens that it goes on from.
type NewAnswer struct {
	Parent    int64 // message that is answered; Ask and Start fill it in
	Text      string
	Reasoning string
	Change    Change // of the conversation, in the same transaction; nil: none
	Answer
}

// AddAnswer begins another answer to a message, and shows it.
func (s *Store) AddAnswer(ctx context.Context, owner, conversation string, a NewAnswer) (m Message, err error) {
	err = s.write(ctx, func(tx *sql.Tx) error {
		m, err = s.addAnswer(ctx, tx, owner, conversation, a)
		return err
	})
	return m, err
}

// Ask adds a question and begins its answer. Both are there, or neither.
func (s *Store) Ask(ctx context.Context, owner, conversation string, q NewMessage, a NewAnswer) (question, answer Message, err error) {
	err = s.write(ctx, func(tx *sql.Tx) error {
		question, answer, err = s.ask(ctx, tx, owner, conversation, q, a)
		return err
	})
	return question, answer, err
}

// Start makes a conversation with its first question and answer. All are there, or
// none. It fails as CreateConversation does.
func (s *Store) Start(ctx context.Context, owner string, n Metadata, q NewMessage, a NewAnswer) (c Conversation, question, answer Message, err error) {
	if err := s.checkFree(); err != nil {
		return Conversation{}, Message{}, Message{}, err
	}
	err = s.write(ctx, func(tx *sql.Tx) error {
		if err := s.createConversation(ctx, tx, owner, &n); err != nil {
			return err
		}
		if question, answer, err = s.ask(ctx, tx, owner, n.ID, q, a); err != nil {
			return err
		}
		c, err = findConversation(ctx, tx, owner, n.ID)
		return err
	})
	return c, question, answer, err
}

// StartUnanswered makes a conversation with its first question. Both are there, or neither. It fails as
// CreateConversation does.
func (s *Store) StartUnanswered(ctx context.Context, owner string, n Metadata, q NewMessage) (c Conversation, question Message, err error) {
	if err := s.checkFree(); err != nil {
		return Conversation{}, Message{}, err
	}
	err = s.write(ctx, func(tx *sql.Tx) error {
		if err := s.createConversation(ctx, tx, owner, &n); err != nil {
			return err
		}
		if question, err = s.addMessage(ctx, tx, owner, n.ID, q, Done); err != nil {
			return err
		}
		c, err = findConversation(ctx, tx, owner, n.ID)
		return err
	})
	return c, question, err
}

func (s *Store) ask(ctx context.Context, tx *sql.Tx, owner, conversation string, q NewMessage, a NewAnswer) (question, answer Message, err error) {
	if question, err = s.addMessage(ctx, tx, owner, conversation, q, Done); err != nil {
		return Message{}, Message{}, err
	}
	a.Parent = question.ID
	answer, err = s.addAnswer(ctx, tx, owner, conversation, a)
	return question, answer, err
}

func (s *Store) addAnswer(ctx context.Context, tx *sql.Tx, owner, conversation string, a NewAnswer) (Message, error) {
	if err := errors.Join(checkText("text", a.Text, MaxText), checkText("reasoning", a.Reasoning, MaxText)); err != nil {
		return Message{}, err
	}
	if a.Change != nil {
		if _, err := a.Change.apply(ctx, tx, owner, conversation); err != nil {
			return Message{}, err
		}
	}
	m, err := s.addMessage(ctx, tx, owner, conversation, NewMessage{Parent: a.Parent, Role: RoleAssistant}, Running)
	if err != nil {
		return Message{}, err
	}
	_, err = tx.ExecContext(ctx, `
		INSERT INTO progress (message, text, reasoning, tokens)
		VALUES (?, ?, ?, ?)`,
		m.ID, a.Text, a.Reasoning, packTokens(a.Tokens))
	if err != nil {
		return Message{}, err
	}
	a.Answer.Tokens = nil
	if err := putAnswer(ctx, tx, m.ID, a.Answer); err != nil {
		return Message{}, err
	}
	return findMessage(ctx, tx, owner, conversation, m.ID)
}

// Progress is what a running answer has written so far, all of it.
type Progress struct {
	Owner        string
	Conversation string
	Message      int64
	Text         string
	Reasoning    string
	Tokens       []int32
	Rows         []TokenRows // that were not saved before
}

// SaveProgress commits the texts of many answers at once: one sync of the disk for
// all chats that are being written. Answers that do not run any more are left as they
// are, and returned. One that cannot be stored keeps none of the others from it; the error is
// then an *InvalidError.
func (s *Store) SaveProgress(ctx context.Context, batch []Progress) (ended []int64, err error) {
	var wrong error
	batch = slices.DeleteFunc(slices.Clone(batch), func(p Progress) bool {
		err := errors.Join(checkText("text", p.Text, MaxText), checkText("reasoning", p.Reasoning, MaxText), checkRows(p.Rows))
		if err != nil {
			wrong = errors.Join(wrong, fmt.Errorf("message %d: %w", p.Message, err))
		}
		return err != nil
	})
	if len(batch) == 0 {
		return nil, wrong
	}
	err = s.save(ctx, func(tx *sql.Tx) error {
		ended = nil
		for _, p := range batch {
			err := changeOne(ctx, tx, "answer", `
				UPDATE progress
				SET
					text      = ?,
					reasoning = ?,
					tokens    = ?
				WHERE message = (
					SELECT m.id
					FROM messages AS m
					JOIN conversations AS c ON c.seq = m.conversation
					WHERE m.id = ? AND c.id = ? AND c.owner = ?
				)`,
				p.Text, p.Reasoning, packTokens(p.Tokens), p.Message, p.Conversation, p.Owner)
			if errors.Is(err, ErrNotFound) {
				ended = append(ended, p.Message)
				continue
			} else if err != nil {
				return err
			}
			if err := s.putTokenRows(ctx, tx, p.Message, p.Rows); err != nil {
				return err
			}
		}
		return nil
	})
	return ended, errors.Join(err, wrong)
}

// Finish is how an answer ended.
type Finish struct {
	State     State // Done, Stopped, Failed or Interrupted
	Text      string
	Reasoning string
	Rows      []TokenRows // that were not saved before
	Answer
}

// Check returns an *InvalidError if f cannot be stored.
func (f Finish) Check() error {
	if f.State != Done && f.State != Stopped && f.State != Failed && f.State != Interrupted {
		return &InvalidError{"state", fmt.Sprintf("is %q, but an answer ends as done, stopped, failed or interrupted", f.State)}
	}
	_, err := f.Answer.document()
	return errors.Join(checkText("text", f.Text, MaxText), checkText("reasoning", f.Reasoning, MaxText), err, checkRows(f.Rows))
}

// FinishAnswer ends a running answer. From now on its text can be found. It fails
// with ErrConflict if the answer has ended already.
func (s *Store) FinishAnswer(ctx context.Context, owner, conversation string, message int64, f Finish) (m Message, err error) {
	if err := f.Check(); err != nil {
		return Message{}, err
	}
	err = s.save(ctx, func(tx *sql.Tx) error {
		// Also in the trash: taking the conversation out again must lose nothing.
		err := changeOne(ctx, tx, fmt.Sprintf("running answer %d", message), `
			DELETE FROM progress
			WHERE message = (
				SELECT m.id
				FROM messages AS m
				JOIN conversations AS c ON c.seq = m.conversation
				WHERE m.id = ? AND c.id = ? AND c.owner = ?
			)`,
			message, conversation, owner)
		if errors.Is(err, ErrNotFound) {
			if _, err := findMessage(ctx, tx, owner, conversation, message); err != nil {
				return err
			}
			return fmt.Errorf("%w: answer %d has ended already", ErrConflict, message)
		}
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `
			UPDATE messages
			SET
				state     = ?,
				text      = ?,
				reasoning = ?
			WHERE id = ?`,
			f.State, f.Text, f.Reasoning, message)
		if err != nil {
			return err
		}
		if err := putAnswer(ctx, tx, message, f.Answer); err != nil {
			return err
		}
		if err := s.putTokenRows(ctx, tx, message, f.Rows); err != nil {
			return err
		}
		if err := s.evictTokenRows(ctx, tx); err != nil {
			return err
		}
		m, err = findMessage(ctx, tx, owner, conversation, message)
		return err
	})
	return m, err
}

// markInterrupted ends the answers that run, with what was saved of them.
func (s *Store) markInterrupted(ctx context.Context) (n int, err error) {
	err = transact(ctx, s.writer.db, func(tx *sql.Tx) error {
		running, err := ids(ctx, tx, `SELECT message FROM progress`)
		if err != nil {
			return err
		}
		for _, id := range running {
			for _, statement := range []string{
				`UPDATE answers SET tokens = (SELECT tokens FROM progress WHERE message = answers.message) WHERE message = ?`,
				`UPDATE messages SET state = 'interrupted', text = p.text, reasoning = p.reasoning FROM progress AS p WHERE p.message = messages.id AND id = ?`,
				`DELETE FROM progress WHERE message = ?`,
			} {
				if _, err := tx.ExecContext(ctx, statement, id); err != nil {
					return err
				}
			}
		}
		n = len(running)
		return nil
	})
	return n, err
}

// Tokens returns the token ids of an answer, those saved so far if it runs.
func (s *Store) Tokens(ctx context.Context, owner, conversation string, message int64) (tokens []int32, err error) {
	err = s.read(ctx, func(tx *sql.Tx) error {
		var packed []byte
		err := tx.QueryRowContext(ctx, `
			SELECT coalesce(p.tokens, a.tokens)
			FROM answers AS a
			JOIN messages AS m ON m.id = a.message
			JOIN conversations AS c ON c.seq = m.conversation
			LEFT JOIN progress AS p ON p.message = a.message
			WHERE a.message = ? AND c.id = ? AND c.owner = ? AND c.deleted_at IS NULL`,
			message, conversation, owner).Scan(&packed)
		if errors.Is(err, sql.ErrNoRows) {
			return fmt.Errorf("answer %d: %w", message, ErrNotFound)
		}
		tokens = unpackTokens(packed)
		return err
	})
	return tokens, err
}

func packTokens(tokens []int32) []byte {
	packed := make([]byte, 0, 4*len(tokens)) // not nil, which would be stored as NULL
	for _, id := range tokens {
		packed = binary.LittleEndian.AppendUint32(packed, uint32(id))
	}
	return packed
}

func unpackTokens(packed []byte) []int32 {
	if len(packed) < 4 {
		return nil
	}
	tokens := make([]int32, len(packed)/4)
	for i := range tokens {
		tokens[i] = int32(binary.LittleEndian.Uint32(packed[4*i:]))
	}
	return tokens
}
