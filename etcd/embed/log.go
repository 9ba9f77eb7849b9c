package embed

// etcd's log, which speaks zap, on the user's slog.

import (
	"context"
	"log/slog"
	"sync/atomic"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// zapLogger returns what etcd is to log to, until it is closed on purpose: it
// reports that its listeners are closed then as errors. It never ends the
// process, which zap's own level Fatal does.
func zapLogger(l *slog.Logger, closing *atomic.Bool) *zap.Logger {
	if l == nil {
		return zap.NewNop()
	}
	return zap.New(core{l, closing})
}

type core struct {
	log     *slog.Logger
	closing *atomic.Bool
}

func (c core) Enabled(level zapcore.Level) bool {
	return level >= zapcore.WarnLevel && !c.closing.Load()
}

func (c core) With(fields []zapcore.Field) zapcore.Core {
	return core{c.log.With(attrs(fields)...), c.closing}
}

func (c core) Check(e zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return checked.AddCore(e, c)
	}
	return checked
}

func (c core) Write(e zapcore.Entry, fields []zapcore.Field) error {
	level := slog.LevelWarn
	if e.Level > zapcore.WarnLevel {
		level = slog.LevelError
	}
	c.log.Log(context.Background(), level, "etcd: "+e.Message, attrs(fields)...)
	return nil
}

func (core) Sync() error { return nil }

func attrs(fields []zapcore.Field) []any {
	m := zapcore.NewMapObjectEncoder()
	list := make([]any, 0, len(fields))
	for _, f := range fields {
		f.AddTo(m)
		if v, ok := m.Fields[f.Key]; ok {
			list = append(list, slog.Any(f.Key, v))
		}
	}
	return list
}
