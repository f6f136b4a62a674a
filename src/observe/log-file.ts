import * as file from '../file/events.ts';
import type { Problems } from '../file/problem.ts';
import { logRule, type LogRule } from './log-rules.ts';
import type { LogKeys } from './log.ts';

/** Log lines of the state file source: one for each problem, so that an editor can find its place. */
export const FILE_RULES: readonly LogRule[] = [
  logRule({
    channel: file.fileLoaded,
    severity: 'info',
    v: 0,
    message: 'Loaded the state file',
    keys: ({ path, services, nodes, bytes, durationMs }) => ({
      path,
      services,
      nodes,
      bytes,
      ms: Math.round(durationMs),
    }),
    limited: true,
  }),
  logRule({
    channel: file.fileLoaded,
    severity: 'warn',
    v: 0,
    message: 'A part of the state file has no effect',
    // Of a file that is written every minute nobody wants to read the same every minute.
    keys: ({ path, newWarnings }) => lines(path, newWarnings, undefined),
  }),
  logRule({
    channel: file.fileInvalid,
    severity: 'error',
    v: 0,
    message: 'The state file has an error; the last good state stays',
    keys: ({ path, error, errors, served }) => (served ? lines(path, errors, error.code) : []),
  }),
  logRule({
    channel: file.fileInvalid,
    severity: 'error',
    v: 0,
    message: 'The state file has an error; nothing is served yet',
    keys: ({ path, error, errors, served }) => (served ? [] : lines(path, errors, error.code)),
  }),
  logRule({
    channel: file.fileReadFailed,
    severity: 'error',
    v: 0,
    message: 'The state file cannot be read; it is tried again',
    keys: ({ path, error }) => ({ path, err: error }),
  }),
  logRule({
    channel: file.fileRecovered,
    severity: 'info',
    v: 0,
    message: 'The state file can be read again',
    keys: ({ path }) => ({ path }),
  }),
];

function lines(path: string, { first, total }: Problems, code: string | undefined): LogKeys[] {
  const common = code === undefined ? {} : { code };
  const all: LogKeys[] = first.map((problem) => {
    const place = { path, line: problem.line, column: problem.column, at: problem.path };
    return Object.assign(place, { err: problem.message }, common);
  });
  if (total > first.length) {
    all.push({ path, err: `and ${total - first.length} more`, ...common });
  }
  return all;
}
