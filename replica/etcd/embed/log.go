package embed

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// zapLogger returns a zap logger for etcd that writes to l. It drops records after
// Close, because etcd then reports its closed listeners as errors. At level Fatal it
// ends the process, as etcd expects: a server that could not save must not
// acknowledge a write.
func zapLogger(l *slog.Logger, closing *atomic.Bool, fail func(error)) *zap.Logger {
	if l == nil {
		l = slog.New(slog.DiscardHandler)
	}
	return zap.New(core{l, closing}, zap.WithFatalHook(fatal{fail}))
}

// fatal handles records of level Fatal.
type fatal struct{ fail func(error) }

// OnWrite implements zapcore.CheckWriteHook.
func (f fatal) OnWrite(e *zapcore.CheckedEntry, fields []zapcore.Field) {
	m := zapcore.NewMapObjectEncoder()
	for _, field := range fields {
		field.AddTo(m)
	}
	err := fmt.Errorf("etcd cannot continue: %s %v", e.Message, m.Fields)
	fmt.Fprintf(os.Stderr, "%v; the process exits\n", err)
	f.fail(err)
	<-time.After(lastWords)
	zapcore.WriteThenFatal.OnWrite(e, fields)
}

// lastWords is the time between the error and the end of the process.
const lastWords = time.Second

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
