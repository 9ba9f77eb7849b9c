package grpc

// Receipts (R5): what a worker shows to complete a task.

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
)

// receipt proves that a manager gave a version of a task's content to a worker. It
// goes by the worker's name: a process may complete what its predecessor of that
// name was given.
type receipt [16]byte

// receiptOf returns a receipt as a worker shows it; the zero value, which proves
// nothing, if it has another length.
func receiptOf[B []byte | string](shown B) (r receipt) {
	if len(shown) == len(r) {
		copy(r[:], shown)
	}
	return r
}

// receiptKey makes and checks receipts. It is kept in the manager's store, so
// that receipts outlive the manager, and is never sent or logged.
type receiptKey []byte

// receiptKeyLength is that of the sum: more adds nothing.
const receiptKeyLength = sha256.Size

func newReceiptKey() receiptKey {
	key := make(receiptKey, receiptKeyLength)
	_, _ = rand.Read(key) // it never fails
	return key
}

// issue returns the receipt for what a worker is given: an HMAC (RFC 2104), cut to
// 16 bytes. The lengths of the names stand before them, so that no two questions
// have one answer.
func (k receiptKey) issue(worker, task string, version int64) (r receipt) {
	sum := hmac.New(sha256.New, k)
	text := make([]byte, 0, 256)
	text = binary.AppendUvarint(text, uint64(len(worker)))
	text = append(text, worker...)
	text = binary.AppendVarint(text, version)
	text = append(text, task...)
	sum.Write(text)
	copy(r[:], sum.Sum(text[:0]))
	return r
}

// issued reports whether a receipt is the one for what a worker says it was given.
func (k receiptKey) issued(r receipt, worker, task string, version int64) bool {
	want := k.issue(worker, task, version)
	return hmac.Equal(r[:], want[:])
}
