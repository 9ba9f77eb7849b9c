// Package communicatortest stands for its floor.
package communicatortest
