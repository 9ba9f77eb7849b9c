package state

// Receipts and assigned tasks (R5): what a worker presents to complete a task, and which
// tasks it may list.

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
)

// Receipt proves that a manager gave a version of a task's content to a worker. It
// is bound to the worker's name, not to the incarnation: a process may complete what
// its predecessor of the same name was given.
type Receipt [16]byte

// ReceiptOf returns a receipt as presented by a worker. If the length is wrong, it
// returns the zero value, which proves nothing.
func ReceiptOf[B []byte | string](shown B) (r Receipt) {
	if len(shown) == len(r) {
		copy(r[:], shown)
	}
	return r
}

// ReceiptKey makes and checks receipts. It is kept in the manager's store, so that
// receipts outlive the manager. It is never sent or logged.
type ReceiptKey []byte

// receiptKeyLength is the length of the hash; a longer key adds nothing.
const receiptKeyLength = sha256.Size

// NewReceiptKey returns a random key.
func NewReceiptKey() ReceiptKey {
	key := make(ReceiptKey, receiptKeyLength)
	_, _ = rand.Read(key) // never fails
	return key
}

// Issue returns the receipt for a content given to a worker: an HMAC (RFC 2104), cut
// to 16 bytes. The length of the worker's name comes first, so that no two inputs
// are encoded alike.
func (k ReceiptKey) Issue(worker, task string, version int64) (r Receipt) {
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

// Issued reports whether r is the receipt for this worker, task and version.
func (k ReceiptKey) Issued(r Receipt, worker, task string, version int64) bool {
	want := k.Issue(worker, task, version)
	return hmac.Equal(r[:], want[:])
}
