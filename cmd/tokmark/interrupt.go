package main

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// interrupts is who answers the signals that end the program. Unless a command
// takes them, the first cancels its context and the second ends the program at
// once.
type interrupts struct {
	mu     sync.Mutex
	seen   int // in all
	taken  int // by answer
	answer func(n int) bool
}

// take has answer called for each signal until release, with its number from
// 0; false: not this one, the program is to end at once.
func (i *interrupts) take(answer func(n int) bool) (release func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.taken, i.answer = 0, answer
	return func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.answer = nil
	}
}

// signal answers one signal and reports whether the program goes on.
func (i *interrupts) signal(cancel context.CancelFunc) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.seen++
	if i.answer != nil {
		i.taken++
		return i.answer(i.taken - 1)
	}
	cancel()
	return i.seen == 1
}

// interruptPatience is how long an interrupted command may take to clean up.
const interruptPatience = 2 * time.Second

// interruptible runs a command and answers signals meanwhile. It does not wait
// for a command that is interrupted and does not end.
func interruptible(w *world, command func(context.Context) error) int {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- command(ctx) }()
	var patience <-chan time.Time
	for {
		select {
		case err := <-ended:
			if ctx.Err() == nil {
				return exitCode(w.Stderr, err)
			}
		case <-patience:
		case <-w.Signals:
			if w.interrupts.signal(cancel) {
				if ctx.Err() != nil {
					patience = time.After(interruptPatience)
				}
				continue
			}
		}
		fmt.Fprintln(w.Stderr, "tokmark: interrupted")
		return exitInterrupted
	}
}

// stopped is the end of a command whose context was canceled.
func stopped(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	return &exitError{code: exitInterrupted}
}
