import type { EventEmitter } from 'node:events';
import { describeError } from '../observe/describe-error.ts';
import type { Log } from '../observe/log.ts';

/** The part of `process` that the life of a program depends on. */
export interface ProcessLike extends Pick<EventEmitter, 'on' | 'off'> {
  exit(code: number): void;
}

export interface LifecycleOptions {
  readonly process: ProcessLike;
  readonly log: Log;
  /** Whether a terminal is behind this: HUP then means that it was closed. */
  readonly terminal: boolean;
  /** Told of the first signal that ends the program. */
  readonly onStop: (signal: string) => void;
  /** Told of HUP where no terminal is behind this. Absent: there is nothing to read again. */
  readonly onHangUp?: () => void;
}

/**
 * Handles signals and what nobody caught, as kpng does where it is sensible.
 *
 * INT and TERM: the first one stops in order, the second one ends at once with code 1. HUP does the
 * same when the program runs at a terminal; otherwise the configuration file is read again, if there
 * is one: state files are followed by themselves. On Windows, Ctrl-C is INT, Ctrl-Break does the same,
 * and HUP says that the console is being closed. Returns the function that ends the handling.
 */
export function watchProcess(options: LifecycleOptions): () => void {
  const { process, log, terminal, onStop, onHangUp } = options;
  let stopping = false;

  const stop = (signal: string): void => {
    if (stopping) {
      log.warn('Second signal: ending at once', { signal });
      process.exit(1);
      return;
    }
    stopping = true;
    onStop(signal);
  };
  const hangUp = (signal: string): void => {
    if (terminal) stop(signal);
    else if (onHangUp !== undefined) onHangUp();
    else log.info('HUP changes nothing: state files are followed by themselves');
  };
  const crash = (error: unknown): void => {
    const stack = error instanceof Error ? { stack: error.stack } : {};
    log.error('Unexpected error: ending at once', { ...describeError(error), ...stack });
    process.exit(1);
  };

  const handlers: [string, (argument: never) => void][] = [
    ['SIGINT', stop],
    ['SIGTERM', stop],
    // Ctrl-Break, on Windows only.
    ['SIGBREAK', stop],
    ['SIGHUP', hangUp],
    ['uncaughtException', crash],
    ['unhandledRejection', crash],
  ];
  for (const [event, handler] of handlers)
    process.on(event, handler as (...args: unknown[]) => void);
  return () => {
    for (const [event, handler] of handlers) {
      process.off(event, handler as (...args: unknown[]) => void);
    }
  };
}
