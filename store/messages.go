package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Role says who wrote a message, in the words of chat templates.
type Role string

const (
	RoleSystem    Role = "system"
	RoleUser      Role = "user"
	RoleAssistant Role = "assistant"
	RoleTool      Role = "tool"
)

// State is what happens to a message. All but answers are Done from the start.
type State string

const (
	Done        State = "done"
	Running     State = "running"
	Stopped     State = "stopped"     // a person ended it
	Failed      State = "failed"      // the engine ended it
	Interrupted State = "interrupted" // the program ended while it ran
)

// Message is a node of a conversation's tree. Edits and regenerations are siblings of
// what they replace.
type Message struct {
	ID       int64 // unique in the store, rising, never reused
	Parent   int64 // 0: none
	Version  int   // place among its siblings, from 1
	Versions int   // how many there are
	Children int
	Role     Role
	State    State
	Text     string // of a running answer: what was saved last
	Created  time.Time
	Answer   *Answer // how it was made; nil for what no model wrote here

	Reasoning string // of an answer: the reasoning before Text
	Author    string // name of the reader of a shared chat who wrote it; empty: its owner did, or a model

	Pictures []Picture
}

// NewMessage is a message that is complete.
type NewMessage struct {
	Parent    int64 // 0: none
	Role      Role
	Text      string
	Reasoning string // of an answer
	Author    string // as in Message
	Pictures  []Picture
}

// AddMessage adds a message below its parent and shows it. An edit is a message with
// the parent of what it replaces. ErrNotFound if the parent is not in the
// conversation.
func (s *Store) AddMessage(ctx context.Context, owner, conversation string, n NewMessage) (m Message, err error) {
	err = s.write(ctx, func(tx *sql.Tx) error {
		m, err = s.addMessage(ctx, tx, owner, conversation, n, Done)
		return err
	})
	return m, err
}

func (s *Store) addMessage(ctx context.Context, tx *sql.Tx, owner, conversation string, n NewMessage, state State) (Message, error) {
	if err := errors.Join(checkRole(n.Role), checkText("text", n.Text, MaxText), checkText("reasoning", n.Reasoning, MaxText), checkText("author", n.Author, maxName), checkPictures(n.Pictures)); err != nil {
		return Message{}, err
	}
	now := s.now()
	err := changeOne(ctx, tx, fmt.Sprintf("conversation %q", conversation), `
		UPDATE conversations
		SET
			roots      = roots + (? = 0),
			activity   = (SELECT max(activity) + 1 FROM conversations),
			updated_at = ?
		WHERE id = ? AND owner = ? AND deleted_at IS NULL`,
		n.Parent, now, conversation, owner)
	if err != nil {
		return Message{}, err
	}
	if n.Parent != 0 {
		err := changeOne(ctx, tx, fmt.Sprintf("message %d in conversation %q", n.Parent, conversation), `
			UPDATE messages
			SET children = children + 1
			WHERE id = ? AND conversation = (SELECT seq FROM conversations WHERE id = ? AND owner = ?)`,
			n.Parent, conversation, owner)
		if err != nil {
			return Message{}, err
		}
	}
	id, err := insertMessage(ctx, tx, owner, conversation, n, state, now)
	if err != nil {
		return Message{}, err
	}
	if err := s.putPictures(ctx, tx, id, n.Pictures); err != nil {
		return Message{}, err
	}
	if err := s.checkQuota(ctx, tx, owner, filesOf(n.Pictures)); err != nil {
		return Message{}, err
	}
	if err := show(ctx, tx, owner, conversation, id, id); err != nil {
		return Message{}, err
	}
	return findMessage(ctx, tx, owner, conversation, id)
}

// insertMessage adds a message whose parent counts it already, and returns its id.
func insertMessage(ctx context.Context, tx *sql.Tx, owner, conversation string, n NewMessage, state State, now int64) (int64, error) {
	result, err := tx.ExecContext(ctx, `
		INSERT INTO messages (
			conversation,
			parent,
			version,
			role,
			state,
			text,
			reasoning,
			author,
			created_at
		)
		SELECT
			c.seq,
			p.id,
			coalesce(p.children, c.roots),
			?,
			?,
			?,
			?,
			?,
			?
		FROM conversations AS c
		LEFT JOIN messages AS p ON p.id = ?
		WHERE c.id = ? AND c.owner = ?`,
		n.Role, state, n.Text, n.Reasoning, n.Author, now, n.Parent, conversation, owner)
	if err != nil {
		return 0, err
	}
	return result.LastInsertId()
}

// show makes leaf the end of the branch that is shown, and remembers at the parent of
// message that it was the child shown last.
func show(ctx context.Context, tx *sql.Tx, owner, conversation string, message, leaf int64) error {
	if err := choose(ctx, tx, message); err != nil {
		return err
	}
	return changeOne(ctx, tx, fmt.Sprintf("conversation %q", conversation), `
		UPDATE conversations
		SET leaf = ?
		WHERE id = ? AND owner = ? AND deleted_at IS NULL`,
		leaf, conversation, owner)
}

// choose remembers at the parent of message that it was the child shown last.
func choose(ctx context.Context, tx *sql.Tx, message int64) error {
	_, err := tx.ExecContext(ctx, `
		UPDATE messages
		SET chosen = ?
		WHERE id = (SELECT parent FROM messages WHERE id = ?)`,
		message, message)
	return err
}

func checkRole(r Role) error {
	if slices.Contains([]Role{RoleSystem, RoleUser, RoleAssistant, RoleTool}, r) {
		return nil
	}
	return &InvalidError{"role", fmt.Sprintf("is %q, but must be system, user, assistant or tool", r)}
}

// Select shows a message, such as another version or one that was searched for, and
// what was shown below it last. It returns the new leaf.
func (s *Store) Select(ctx context.Context, owner, conversation string, message int64) (leaf int64, err error) {
	err = s.write(ctx, func(tx *sql.Tx) error {
		if _, err := findMessage(ctx, tx, owner, conversation, message); err != nil {
			return err
		}
		err := tx.QueryRowContext(ctx, `
			WITH RECURSIVE below (id, depth) AS (
				VALUES (?, 0)
				UNION ALL
				SELECT m.chosen, below.depth + 1
				FROM below
				JOIN messages AS m ON m.id = below.id
				WHERE m.chosen IS NOT NULL
			)
			SELECT id
			FROM below
			ORDER BY depth DESC
			LIMIT 1`,
			message).Scan(&leaf)
		if err != nil {
			return err
		}
		return show(ctx, tx, owner, conversation, message, leaf)
	})
	return leaf, err
}

// Sibling returns the id of a version of a message.
func (s *Store) Sibling(ctx context.Context, owner, conversation string, message int64, version int) (id int64, err error) {
	err = s.read(ctx, func(tx *sql.Tx) error {
		if _, err := findConversation(ctx, tx, owner, conversation); err != nil {
			return err
		}
		m, err := findMessage(ctx, tx, owner, conversation, message)
		if err != nil {
			return err
		}
		err = tx.QueryRowContext(ctx, `
			SELECT m.id
			FROM messages AS m
			WHERE m.parent = ? AND m.version = ?
			UNION ALL
			SELECT m.id
			FROM conversations AS c
			JOIN messages AS m ON m.conversation = c.seq
			WHERE ? = 0 AND c.id = ? AND c.owner = ? AND m.parent IS NULL AND m.version = ?`,
			m.Parent, version, m.Parent, conversation, owner, version).Scan(&id)
		if errors.Is(err, sql.ErrNoRows) {
			return fmt.Errorf("version %d of message %d: %w", version, message, ErrNotFound)
		}
		return err
	})
	return id, err
}

// messageColumns are of messages m in conversations c. Message and parent are looked
// up by their keys alone, so a page costs the same in any conversation.
const messageColumns = `
			m.id,
			coalesce(m.parent, 0),
			m.version,
			coalesce(above.children, c.roots),
			m.children,
			m.role,
			m.state,
			coalesce(p.text, m.text),
			coalesce(p.reasoning, m.reasoning),
			m.author,
			m.created_at,
			coalesce(a.record, ''),` + pictureColumn

const messageJoins = `
		LEFT JOIN messages AS above ON above.id = m.parent
		LEFT JOIN progress AS p ON p.message = m.id
		LEFT JOIN answers AS a ON a.message = m.id`

func scanMessage(row interface{ Scan(...any) error }, more ...any) (m Message, err error) {
	var created int64
	var document, pictures string
	err = row.Scan(append([]any{
		&m.ID, &m.Parent, &m.Version, &m.Versions, &m.Children, &m.Role, &m.State, &m.Text, &m.Reasoning, &m.Author, &created, &document, &pictures,
	}, more...)...)
	if err != nil {
		return Message{}, err
	}
	m.Created = fromMillis(created)
	if m.Pictures, err = readPictures(pictures); err != nil {
		return Message{}, err
	}
	m.Answer, err = readAnswer(document)
	return m, err
}

// Message returns one message.
func (s *Store) Message(ctx context.Context, owner, conversation string, id int64) (m Message, err error) {
	err = s.read(ctx, func(tx *sql.Tx) error {
		if _, err := findConversation(ctx, tx, owner, conversation); err != nil {
			return err
		}
		m, err = findMessage(ctx, tx, owner, conversation, id)
		return err
	})
	return m, err
}

// findMessage looks in the trash too: an answer may end there.
func findMessage(ctx context.Context, tx *sql.Tx, owner, conversation string, id int64) (Message, error) {
	m, err := scanMessage(tx.QueryRowContext(ctx, `
		SELECT`+messageColumns+`
		FROM messages AS m
		JOIN conversations AS c ON c.seq = m.conversation`+messageJoins+`
		WHERE m.id = ? AND c.id = ? AND c.owner = ?`,
		id, conversation, owner))
	if errors.Is(err, sql.ErrNoRows) {
		return Message{}, fmt.Errorf("message %d in conversation %q: %w", id, conversation, ErrNotFound)
	}
	return m, err
}

// maxPage is how many messages a page holds at most.
const maxPage = 500

// Page returns the messages of a branch that end above message before, oldest first;
// before 0 means with the leaf that is shown. An empty page ends the conversation. It
// reads limit messages (default 100, at most 500), however many there are.
func (s *Store) Page(ctx context.Context, owner, conversation string, before int64, count int) ([]Message, error) {
	return s.branch(ctx, owner, conversation, before, limit(count, 100, maxPage))
}

// Branch returns all messages from the first to the one that is shown last, as a
// prompt needs them.
func (s *Store) Branch(ctx context.Context, owner, conversation string) ([]Message, error) {
	return s.branch(ctx, owner, conversation, 0, -1)
}

// BranchTo returns all messages from the first to message last, whether they are shown or not.
func (s *Store) BranchTo(ctx context.Context, owner, conversation string, last int64) ([]Message, error) {
	list, err := s.branch(ctx, owner, conversation, last, -1)
	if err != nil {
		return nil, err
	}
	m, err := s.Message(ctx, owner, conversation, last)
	return append(list, m), err
}

const branchQuery = `
		WITH RECURSIVE branch (id, place) AS (
			SELECT iif(? = 0, c.leaf, (SELECT m.parent FROM messages AS m WHERE m.id = ? AND m.conversation = c.seq)), 1
			FROM conversations AS c
			WHERE c.id = ? AND c.owner = ? AND c.deleted_at IS NULL
			UNION ALL
			SELECT m.parent, branch.place + 1
			FROM branch
			JOIN messages AS m ON m.id = branch.id
			WHERE m.parent IS NOT NULL
			LIMIT ?
		)
		SELECT` + messageColumns + `
		FROM branch
		CROSS JOIN messages AS m ON m.id = branch.id
		JOIN conversations AS c ON c.seq = m.conversation` + messageJoins + `
		ORDER BY branch.place DESC`

func (s *Store) branch(ctx context.Context, owner, conversation string, before int64, count int) (list []Message, err error) {
	err = s.read(ctx, func(tx *sql.Tx) error {
		if _, err := findConversation(ctx, tx, owner, conversation); err != nil {
			return err
		}
		if before != 0 {
			if _, err := findMessage(ctx, tx, owner, conversation, before); err != nil {
				return err
			}
		}
		rows, err := tx.QueryContext(ctx, branchQuery, before, before, conversation, owner, count)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			m, err := scanMessage(rows)
			if err != nil {
				return err
			}
			list = append(list, m)
		}
		return rows.Err()
	})
	return list, err
}

// Messages returns messages of a conversation, of all its branches, by id, so that parents
// come before their children; answers have their tokens. They are those after message
// after, and some hundred, fewer where they are long; none after the last.
func (s *Store) Messages(ctx context.Context, owner, conversation string, after int64) (list []Message, err error) {
	err = s.read(ctx, func(tx *sql.Tx) error {
		if _, err := findConversation(ctx, tx, owner, conversation); err != nil {
			return err
		}
		rows, err := tx.QueryContext(ctx, `
			SELECT`+messageColumns+`,
				coalesce(p.tokens, a.tokens)
			FROM conversations AS c
			JOIN messages AS m ON m.conversation = c.seq`+messageJoins+`
			WHERE c.id = ? AND c.owner = ? AND m.id > ?
			ORDER BY m.id`,
			conversation, owner, after)
		if err != nil {
			return err
		}
		defer rows.Close()
		for bytes := 0; len(list) < 4*batchMessages && bytes < 8*batchBytes && rows.Next(); {
			var packed []byte
			m, err := scanMessage(rows, &packed)
			if err != nil {
				return err
			}
			if m.Answer != nil {
				m.Answer.Tokens = unpackTokens(packed)
			}
			list = append(list, m)
			bytes += len(m.Text) + len(m.Reasoning) + len(packed)
		}
		return rows.Err()
	})
	return list, err
}
