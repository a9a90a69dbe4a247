package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
)

// OpenMemory opens a new database in memory, of which nothing is ever on a disk: it is gone when it is
// closed. It has no folder, no lock, no backups and no limit of the disk; calls that read wait for a
// commit there. Of opt, Path, MinFree and Ballast count for nothing.
func OpenMemory(ctx context.Context, opt Options) (*Store, error) {
	opt.Path, opt.Ballast, opt.memory = "/m40-llm-"+NewID(), -1, true
	opt.free = func(string) (int64, error) { return math.MaxInt64, nil }
	if err := opt.setDefaults(); err != nil {
		return nil, err
	}
	s := &Store{opt: opt, writer: writer{busy: make(chan struct{}, 1)}}
	s.writer.db = s.pool(writerDSN(opt.Path), 1)
	if err := s.openMemory(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("failed to open a database in memory: %w", err), s.shutPools())
	}
	return s, nil
}

func (s *Store) openMemory(ctx context.Context) error {
	if err := s.writer.db.PingContext(ctx); err != nil { // the database lives as long as a connection
		return err
	}
	if err := s.migrate(ctx, 0); err != nil {
		return err
	}
	s.readers = s.pool(readerDSN(s.opt.Path), readerConnections)
	s.ballast = newBallast(s.opt)
	return connectAll(ctx, s.readers)
}

// inMemory makes a data source name that of a database in memory, which all connections of this process share
// by its name. It has no log.
func inMemory(dsn string) string {
	return strings.Replace(dsn, "_journal_mode=WAL", "_journal_mode=MEMORY", 1) + "&vfs=memdb"
}
