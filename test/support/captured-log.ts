import { createLog, type AdjustableLog, type LogFormat } from '../../src/observe/log.ts';

/** One line of the JSON log. */
export type LogLine = Record<string, unknown> & { level: string; msg: string };

export interface CapturedLog {
  readonly log: AdjustableLog;
  /** What was written, line by line, as it was. */
  readonly raw: string[];
  /** What was written so far, parsed; only for the JSON format. */
  readonly lines: () => LogLine[];
  /** Messages of the lines so far. */
  readonly messages: () => string[];
}

/** A log that keeps its lines. */
export async function captureLog(verbosity = 0, format: LogFormat = 'json'): Promise<CapturedLog> {
  const raw: string[] = [];
  const log = await createLog({ format, verbosity, write: (line) => raw.push(line) });
  const lines = (): LogLine[] => raw.map((line) => JSON.parse(line) as LogLine);
  return { log, raw, lines, messages: () => lines().map(({ msg }) => msg) };
}
