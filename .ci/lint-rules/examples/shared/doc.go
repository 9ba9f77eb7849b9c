// Package shared stands for what two examples have in common.
package shared
